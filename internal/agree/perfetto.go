// What the Perfetto trace says.

package agree

import (
	"errors"
	"strconv"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/perfettotest"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// statesSQL adds up the tracks of states. A track's number ends in its thread's.
const statesSQL = `select extract_arg(t.source_arg_set_id, 'trace_id') & 0xffffffff as thread, s.name, sum(s.dur)
	from slice s join track t on s.track_id = t.id where s.category = 'state' group by 1, 2`

// Perfetto checks a Perfetto trace of src with the real trace processor, as [perfettotest.Check] does, and that it
// agrees with the report. It skips the test where there is no trace processor. stateless: the recording may be too long
// for states.
func Perfetto(t testing.TB, path string, src trace.Source) {
	t.Helper()
	rows := perfettotest.CheckQuery(t, path, statesSQL)[0]
	if len(rows) == 0 && src.Stats().Events > 2_000_000 {
		return // such a trace has no states
	}
	label := map[string]string{}
	for s := range weigh.NumStates {
		label[s.String()] = s.Label()
	}
	got := did{}
	for _, r := range rows {
		id, err := strconv.ParseUint(r[0], 10, 32)
		if err != nil {
			t.Fatalf("perfetto: %v", err)
		}
		ns, err := strconv.ParseInt(r[2], 10, 64)
		if err != nil {
			t.Fatalf("perfetto: %v", err)
		}
		got.add(trace.ThreadID(id), label[r[1]], ns)
	}
	want, _, err := fromReport(src, report.ViewThreads)
	if err != nil {
		t.Fatal(err)
	}
	var d differences
	if d.did("the Perfetto trace", got, want); d != nil {
		t.Error(errors.Join(d...))
	}
}
