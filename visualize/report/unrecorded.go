// Programs below the command that were not recorded.

package report

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/visualize/number"
	"github.com/hbtrace/hbtrace/visualize/terminal"
)

// unrecorded is how many processes were not recorded, as far as they were seen.
func (f *facts) unrecorded() (n uint64) {
	for i := range f.stats.Unrecorded {
		n += f.stats.Unrecorded[i].Count
	}
	return n
}

// mostMissing bounds the programs that the first lines name.
const mostMissing = 3

// notRecorded says which programs were not recorded and why, for the first lines; nil when there are none.
func (f *facts) notRecorded() []string {
	list := f.stats.Unrecorded
	if len(list) == 0 {
		return nil
	}
	var cpu int64
	for i := range list {
		cpu += int64(list[i].CPU)
	}
	out := []string{fmt.Sprintf("not recorded: %s, %s of CPU", number.Plural(f.unrecorded(), "process"), inline(duration(cpu)))}
	for i := range list[:min(len(list), mostMissing)] {
		u := &list[i]
		line := fmt.Sprintf("%s %s", number.Count(u.Count), terminal.Clean(filepath.Base(u.Program)))
		if u.Reason != "" {
			line += " (" + u.Reason + ")"
		}
		if u.CPU > 0 {
			line += " " + inline(duration(int64(u.CPU)))
		}
		out = append(out, line)
	}
	if more := len(list) - mostMissing; more > 0 {
		out = append(out, number.Plural(uint64(more), "more program"))
	}
	return out
}

// biased says, for the first lines, that a program keeps the sampling signal for itself, so that its profile leans
// towards hooked calls; "" where none does.
func (f *facts) biased() string {
	var names []string
	n := 0
	for _, p := range f.src.Processes() {
		if !p.Doubt.HandlerChained && !p.Doubt.SyncOnly {
			continue
		}
		n++
		if name := terminal.Clean(filepath.Base(p.Exe)); len(names) < mostMissing && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("CPU profile biased towards hooked calls in %s (%s): own handler for the sampling signal; record with --signal rtmin+10",
		number.Plural(uint64(n), "process"), strings.Join(names, ", "))
}
