// Package attach puts the agent into a program that runs already, and takes it out again (docs/design/attach.md).
//
// Nothing is loaded by the program's loader. One thread of the program is stopped once, for some microseconds, and made to run a
// stub that maps memory and opens a pair of sockets; everything else is written from outside through /proc/PID/mem while the
// program runs: the agent's text and data, thunks that jump to its wrappers, and the program's linkage slots that lead to the
// thunks. target.go reads a process, check.go says who cannot be attached to, modules.go reads what its loader has loaded,
// image.go relocates the agent, stub.go and stop_amd64.go run the stub, thunks.go is what stays in the program, slots.go redirects
// calls, dormant.go does without a stop where the program has preloaded the dormant agent, join.go is the whole of attaching, leave.go of leaving, inside.go proves that no thread is in the agent any more.
package attach

import "time"

// Step names a moment of attaching or leaving; tests end the attacher there.
type Step string

// The steps, in their order.
const (
	StepOpened   Step = "opened"
	StepRung     Step = "half-rung" // of a dormant agent
	StepPlaced   Step = "stub-written"
	StepSeized   Step = "seized"
	StepStopped  Step = "stopped"
	StepSent     Step = "sent-to-stub"
	StepReleased Step = "released"
	StepMapped   Step = "mapped"
	StepWritten  Step = "agent-written"
	StepArmed    Step = "armed"
	StepHalf     Step = "half-patched"
	StepPatched  Step = "patched"
	StepLeaving  Step = "leaving"
	StepHalfBack Step = "half-restored"
	StepRestored Step = "restored"
	StepQuiet    Step = "quiet"
	StepOutside  Step = "outside"
	StepUnmapped Step = "unmapped"
)

// Steps are those of a program without a dormant agent.
var Steps = []Step{StepOpened, StepPlaced, StepSeized, StepStopped, StepSent, StepReleased, StepMapped, StepWritten, StepArmed, StepHalf,
	StepPatched, StepLeaving, StepHalfBack, StepRestored, StepQuiet, StepOutside, StepUnmapped}

// reached is called at each step; tests replace it.
var reached = func(Step) {}

// DormantSteps are those that differ where a program has one: none of its threads is stopped.
var DormantSteps = []Step{StepRung, StepPlaced, StepReleased, StepPatched, StepQuiet}

// OnStep has f called at each step. It is for tests.
func OnStep(f func(Step)) { reached = f }

// Hold is how long a thread of the program was stopped.
type Hold time.Duration
