package e2e

// page_test.go: recordings of the demo and of redis in the page, in a real browser, as hbtrace view shows them and as
// export writes them.

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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
			for _, w := range want[v] {
				p.Await(fmt.Sprintf("document.querySelector('main').innerText.includes(%q) || document.querySelector('main').textContent.includes(%q)", w, w))
			}
			p.Await("document.body.dataset.pending === '0'")
		}
		if bad := p.Problems(); len(bad) > 0 {
			t.Errorf("%s: %s", form, strings.Join(bad, "\n"))
		}
		p.Close()
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
