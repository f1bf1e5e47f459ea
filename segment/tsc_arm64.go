// tsc_arm64.go: the virtual counter of arm64, the same that the agent's hb_stamp reads.
package segment

const haveCycles = true

// cycles reads CNTVCT_EL0. As on x86-64 it does not wait for earlier instructions.
func cycles() uint64
