package e2e

// page_test.go: recordings of the demo and of redis in the page, in a real browser, as hbtrace view shows them and as
// export writes them.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/testprog"
)

func TestPageOfDemo(t *testing.T) {
	chromium.Path(t)
	s := start(t, testprog.Command{Args: []string{demo(t), "1"}}, "-F", "999")
	s.finish(t)
	lookAt(t, s.prefix+".hbt", map[string][]string{
		"timeline": {"waiting for mutex cache_lock", "held by cache-refresher in refresh_cache", "knead_dough"},
		"flame":    {"knead_dough", "chop_vegetables"},
		"blocks":   {"cache-refresher", "mutex cache_lock", "look_up_price", "refresh_cache"},
		"slow":     {"Turns between returns of"},
		"trust":    {"chef-0", "Nothing was lost", "exact"},
	})
}

func TestPageOfRedis(t *testing.T) {
	chromium.Path(t)
	server := testprog.LookPath(t, "redis-server", "redis-server")
	load := testprog.LookPath(t, "redis-benchmark", "redis-tools")
	port := freePort(t)
	s := start(t, testprog.Command{Args: []string{server, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
		"--daemonize", "no", "--dir", t.TempDir(), "--io-threads", "2"}})
	waitPort(t, s, port)
	if out, err := exec.Command(load, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-n", "4000", "-c", "10", "-q", "-t", "set,get").CombinedOutput(); err != nil {
		t.Fatalf("redis-benchmark: %v\n%s", err, out)
	}
	s.terminate(t)
	lookAt(t, s.prefix+".hbt", map[string][]string{
		"timeline": {"of CPU"},
		"flame":    {"IOThreadMain"},
		"blocks":   {},
		"slow":     {"epoll_wait"},
		"trust":    {"bio_", "exact"},
	})
}

// chosen is what a view shows here: unless something is chosen, what is heaviest, and that is chance.
// The third is true when the view shows it.
var chosen = map[string][3]string{
	"flame":  {"value", "cpu", `document.querySelector(".tools select[data-option=value]").value === "cpu"`},
	"blocks": {"kinds", "locks", `document.querySelector(".blocks .tools [aria-pressed=true]").innerText === "Locks"`},
}

// lookAt opens every view of a recording in both forms of the page, and looks for words in each.
func lookAt(t *testing.T, hbt string, want map[string][]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if out, err := exec.Command(testprog.Hbtrace(t), "export", hbt, "--html", file).CombinedOutput(); err != nil {
		t.Fatalf("export --html: %v\n%s", err, out)
	}
	b := chromium.Start(t)
	for _, address := range []string{view(t, hbt), (&url.URL{Scheme: "file", Path: file}).String()} {
		form, _, _ := strings.Cut(address, ":")
		p := b.Open(t, address, 1500, 950, 1)
		for i, v := range []string{"timeline", "flame", "blocks", "slow", "trust"} {
			p.Await("globalThis.hbtrace && hbtrace.store.about.done")
			p.Key(fmt.Sprint(i + 1))
			p.Await(fmt.Sprintf("hbtrace.shared.state.view === %q", v))
			if o := chosen[v]; o[0] != "" {
				p.Eval(fmt.Sprintf("hbtrace.shared.choose(%q, %q)", o[0], o[1]), nil)
				p.Await(o[2])
			}
			for _, w := range want[v] {
				p.Await(fmt.Sprintf("document.querySelector('main').innerText.includes(%q) || document.querySelector('main').textContent.includes(%q)", w, w))
			}
			p.Await("document.body.dataset.pending === '0'")
			if v == "blocks" {
				blocksAsReported(t, p, form, hbt)
			}
		}
		if bad := p.Problems(); len(bad) > 0 {
			t.Errorf("%s: %s", form, strings.Join(bad, "\n"))
		}
		p.Close()
	}
}

// blocksAsReported holds the graph of who blocks whom, and the chains below it, to report --locks, to the nanosecond.
func blocksAsReported(t *testing.T, p *chromium.Page, form, hbt string) {
	t.Helper()
	out, err := exec.Command(testprog.Hbtrace(t), "report", "--locks", "--json", hbt).Output()
	if err != nil {
		t.Fatalf("report --locks: %v", err)
	}
	var r struct {
		Edges []struct {
			Kind   string
			Waiter *struct{ TID int }
			Total  int64 `json:"total_ns"`
		}
		Chains []struct {
			Lock  bool
			Total int64 `json:"total_ns"`
		}
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	want, all := map[string]int64{}, int64(0)
	for _, e := range r.Edges {
		if e.Kind == "mutex" || strings.HasPrefix(e.Kind, "rwlock") {
			want[strconv.Itoa(e.Waiter.TID)] += e.Total
		}
	}
	var chains []int64
	for _, c := range r.Chains {
		if c.Lock {
			chains = append(chains, c.Total)
			all += c.Total
		}
	}
	if len(chains) == 0 {
		t.Logf("%s: nobody waited for a lock in %s", form, hbt)
		return
	}
	p.Await("document.querySelectorAll('.chains li').length > 0")
	var got struct {
		Waiters map[string]int64 // by thread number
		Others  int64            // of all that have no place of their own in the graph
		Chains  []int64
	}
	p.Eval(`(() => {
    const spots = [...document.querySelectorAll(".blocks .spot[data-id^=w]")].map((x) => [Number(x.dataset.id.slice(1)), Number(x.dataset.ns)]);
    const shown = spots.filter(([t]) => t >= 0);
    return {
      Waiters: Object.fromEntries(shown.map(([t, ns]) => [hbtrace.store.about.threads[t].tid, ns])),
      Others: spots.filter(([t]) => t < 0).reduce((n, [, ns]) => n + ns, 0),
      Chains: [...document.querySelectorAll(".chains li")].map((x) => Number(x.dataset.ns)),
    };
  })()`, &got)
	shown := maps.Clone(want)
	others := int64(0)
	maps.DeleteFunc(shown, func(tid string, ns int64) bool {
		_, is := got.Waiters[tid]
		if !is {
			others += ns
		}
		return !is
	})
	if !maps.Equal(got.Waiters, shown) || got.Others != others || len(shown) < min(len(want), 16) {
		t.Errorf("%s: the graph says who waited how long for locks: %v, others %d; report --locks %v", form, got.Waiters, got.Others, want)
	}
	if len(got.Chains) > len(chains) || !slices.Equal(got.Chains, chains[:len(got.Chains)]) {
		t.Errorf("%s: the chains last %v, those of report --locks %v", form, got.Chains, chains)
	}
	sum := int64(0)
	for _, ns := range want {
		sum += ns
	}
	if sum != all {
		t.Errorf("%s: all waits for locks last %d ns, all of their chains %d", form, sum, all)
	}
}

// view starts hbtrace view and gives the address that it prints; it ends with the test, by Ctrl-C.
func view(t *testing.T, hbt string) string {
	t.Helper()
	cmd := exec.Command(testprog.Hbtrace(t), "view", "--no-browser", hbt)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("hbtrace view, interrupted: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "http://127.0.0.1:") {
		t.Fatalf("hbtrace view printed %q (%v)", line, err)
	}
	return strings.TrimSpace(line)
}
