package report

import (
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// TestTitles: main threads of processes that gave themselves a title are told apart by it.
func TestTitles(t *testing.T) {
	b := tracetest.New()
	for i, title := range []string{"postgres: checkpointer", "postgres: walwriter", "nginx"} {
		p := b.AddProcess(trace.Process{PID: 10 + i, Exe: "/usr/bin/server", Cmdline: []string{title}})
		b.AddThread(trace.Thread{Proc: p, TID: 10 + i, Name: "server", Main: true})
		b.AddThread(trace.Thread{Proc: p, TID: 20 + i, Name: "worker"})
	}
	for _, width := range []int{80, 140} {
		var w strings.Builder
		if err := Write(&w, b.Source(), ViewThreads, Options{Width: width}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"10 checkpointer", "11 walwriter", "server/12", "worker/20"} {
			if !strings.Contains(w.String(), want) {
				t.Errorf("%d columns: no %q:\n%s", width, want, w.String())
			}
		}
	}
}
