package report

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestEdgesJSON(t *testing.T) {
	var r struct {
		Edges []struct {
			Kind, Object             string
			Address                  string
			Waiter, Holder, Releaser *struct {
				TID  int
				Name string
			}
			Certain     int
			Count       int
			HolderDoing []struct {
				What string
				Ns   int64
			} `json:"holder_doing"`
			TotalNs       int64    `json:"total_ns"`
			MaxNs         int64    `json:"max_ns"`
			WaiterStack   []string `json:"waiter_stack"`
			ReleaserStack []string `json:"releaser_stack"`
		}
	}
	out := render(t, server().Source(), ViewLocks, Options{JSON: true})
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Edges) != 4 {
		t.Fatalf("%d edges, want 4", len(r.Edges))
	}
	e := r.Edges[0]
	if e.Kind != "mutex" || e.Object != "mutex of journal::Journal::append" || e.Address != "0x7f0010" || e.Count != 18 ||
		e.TotalNs != 18*38_020_000 || e.MaxNs != 38_020_000 || e.Certain != 9 {
		t.Errorf("first edge %+v", e)
	}
	if e.Waiter.Name != "worker-1" || e.Holder.TID != 4103 || e.Releaser.Name != "flusher" {
		t.Errorf("threads %+v, %+v, %+v", e.Waiter, e.Holder, e.Releaser)
	}
	if d := e.HolderDoing; len(d) == 0 || d[0].What != "fsync in journal::Journal::flush(bool)" || d[0].Ns != 18*37_000_000 {
		t.Errorf("the holder did %+v", e.HolderDoing)
	}
	want := []string{"pthread_mutex_lock", "std::mutex::lock()", "journal::Journal::append(std::string const&)", "handle", "worker_main", "start_thread"}
	if !slices.Equal(e.WaiterStack, want) {
		t.Errorf("waiter's stack %q", e.WaiterStack)
	}
	want = []string{"pthread_mutex_unlock", "std::mutex::unlock()", "journal::Journal::flush(bool)", "flusher_main", "start_thread"}
	if !slices.Equal(e.ReleaserStack, want) {
		t.Errorf("releaser's stack %q", e.ReleaserStack)
	}
	last := r.Edges[3]
	if last.Releaser != nil || last.Holder != nil || last.ReleaserStack == nil || len(last.ReleaserStack) != 0 {
		t.Errorf("edge with no releaser: %+v", last)
	}
	for i := 1; i < len(r.Edges); i++ {
		if r.Edges[i].TotalNs > r.Edges[i-1].TotalNs {
			t.Errorf("edge %d is heavier than the one before it", i)
		}
	}
}
