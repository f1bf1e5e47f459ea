// Programs below the command that were not recorded.

package report

import (
	"fmt"
	"path/filepath"

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
