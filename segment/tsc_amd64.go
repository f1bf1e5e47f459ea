// tsc_amd64.go: the cycle counter of x86-64, the same that the agent's hb_stamp reads.
package segment

const haveCycles = true

// cycles reads the time-stamp counter. RDTSC does not wait for earlier instructions; callers that relate it
// to another clock repeat and keep the tightest bracket.
func cycles() uint64
