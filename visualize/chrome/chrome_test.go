package chrome

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hbtrace/hbtrace/internal/perfettotest"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
)

// event is one of the Trace Event Format's, of what is written.
type event struct {
	Ph   string
	PID  *int
	TID  *int
	TS   *float64
	Dur  *float64
	Name string
	Cat  string
	Args map[string]any
	ID   int
	BP   string
	S    string
}

// load reads a trace strictly and checks what readers rely on: spans that are begun are ended in turn, arrows have two ends.
func load(t *testing.T, src trace.Source) []event {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, src); err != nil {
		t.Fatal(err)
	}
	var f struct {
		OtherData   map[string]string
		TraceEvents []event
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	open, arrows := map[string]int{}, map[int]string{}
	for i, e := range f.TraceEvents {
		if e.PID == nil || e.TID == nil || e.TS == nil {
			t.Fatalf("event %d: %+v", i, e)
		}
		who := fmt.Sprint(*e.PID, *e.TID)
		switch e.Ph {
		case "B":
			open[who]++
		case "E":
			if open[who]--; open[who] < 0 {
				t.Errorf("event %d ends what was not begun", i)
			}
		case "X":
			if e.Dur == nil || *e.Dur < 0 || e.Name == "" || e.Cat == "" && e.Args != nil {
				t.Errorf("event %d: %+v", i, e)
			}
		case "s", "f":
			arrows[e.ID] += e.Ph
		case "M", "i":
		default:
			t.Errorf("event %d: phase %q", i, e.Ph)
		}
	}
	for who, n := range open {
		if n != 0 {
			t.Errorf("thread %s: %d spans are not ended", who, n)
		}
	}
	for id, ends := range arrows {
		if ends != "sf" {
			t.Errorf("arrow %d: %q", id, ends)
		}
	}
	return f.TraceEvents
}

func TestDemo(t *testing.T) {
	n := map[string]int{}
	for _, e := range load(t, synthetic.Demo()) {
		n[e.Ph]++
		if e.Name == "pthread_mutex_lock" && e.Args["releaser"] == "app 4000" {
			n["woken by app"]++
			if e.Cat != "lock" || e.Args["owner"] != "app 4000" || *e.TS != 3000 {
				t.Errorf("%+v", e)
			}
		}
	}
	if n["woken by app"] != 1 || n["B"] == 0 || n["s"] < 3 || n["i"] != 1 || n["M"] < 5 {
		t.Errorf("%v", n)
	}
}

// TestRealReader: Perfetto's importer of Chrome traces takes it without a complaint, and shows what was recorded.
func TestRealReader(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, synthetic.Demo()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "demo.json")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	rows := perfettotest.QueryAll(t, file,
		`select s.name, s.dur from slice s join thread_track t on s.track_id = t.id join thread using (utid) where s.category = 'lock' and thread.name = 'worker'`,
		`select count(*) from flow`, `select count(distinct name) from thread where tid in (4000, 4001, 4002, 10004000, 10004001)`,
		`select name, value from stats where severity in ('error', 'data_loss') and value > 0`, `select name, ts from slice where dur < 0`)
	if got := fmt.Sprint(rows[0]); got != "[[pthread_mutex_lock 5100000]]" {
		t.Errorf("the worker's wait for the lock: %s", got)
	}
	if got := fmt.Sprint(rows[1]); got != "[[4]]" {
		t.Errorf("arrows: %s", got)
	}
	if len(rows[3]) > 0 || len(rows[4]) > 0 {
		t.Errorf("complaints %s, slices without an end %s", rows[3], rows[4])
	}
}

func TestOddInput(t *testing.T) {
	for name, src := range synthetic.Odd(2_000) {
		t.Run(name, func(t *testing.T) { load(t, src) })
	}
}

func TestReaderGoesAway(t *testing.T) {
	if err := Write(synthetic.Gone{}, synthetic.Demo()); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}
