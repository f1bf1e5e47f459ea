// The lines that say how far to trust a profile.

package pprof

import (
	"fmt"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

func comments(src trace.Source, t *weigh.Table) []string {
	m, s, d := src.Meta(), src.Stats(), &t.Doubt
	share := func(n uint64) string {
		if d.Stacks == 0 {
			return "none"
		}
		return fmt.Sprintf("%.2f%%", 100*float64(n)/float64(d.Stacks))
	}
	var out []string
	say := func(format string, args ...any) { out = append(out, frames.Valid(fmt.Sprintf(format, args...))) }
	say("recorded by hbtrace %s", m.Version)
	if len(m.Command) > 0 {
		say("command: %s", strings.Join(m.Command, " "))
	}
	say("weighted stacks: %d events; cut short %s, with guessed frames %s, with frames left out %s, without a stack %s, leaf without a symbol %s",
		d.Stacks, share(d.Cut), share(d.Guessed), share(d.Omitted), share(d.NoStack), share(d.Unsymbolised))
	say("records lost: %d; gaps %d, broken %d, overwritten %d", max(s.Lost, d.Lost), s.Gaps, s.Broken, s.Overwritten)
	if t.Total[weigh.CPU] > 0 {
		used := "unknown"
		if d.ThreadCPU > 0 {
			used = time.Duration(d.ThreadCPU).String()
		}
		say("cpu: %v in the profile, of it %v after threads' last samples (kind=tail), %v by samples taken late, at the next call, %v noticed so late and shared out over samples of the same runs of work; used by the threads: %s",
			time.Duration(t.Total[weigh.CPU]), time.Duration(d.TailCPU), time.Duration(d.LateCPU), time.Duration(d.SharedCPU), used)
	}
	if m.CallThresholdNs > 0 || m.LockThresholdNs > 0 {
		say("blocked: waits from %v and calls from %v on; shorter ones are in no stack",
			time.Duration(m.LockThresholdNs), time.Duration(m.CallThresholdNs))
	}
	if t.Total[weigh.AllocSpace] > 0 {
		say("allocations: sampled each %d bytes on average, weighted without bias; %d frees of allocations that are not in the recording",
			m.AllocPeriod, d.FreesUnmet)
	}
	if s.AgentCPU > 0 {
		say("overhead: agent %v of the program's CPU time; next to it collector %v, sampler %v", s.AgentCPU, s.CollectorCPU, s.SamplerCPU)
	}
	if !s.Complete {
		say("the recording was not closed properly: its end may be missing")
	}
	for _, n := range s.Notes {
		say("%s", n)
	}
	return out
}
