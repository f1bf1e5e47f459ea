package e2e

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestStressHangingReceiver: as many pushes as an hour has go to a receiver that accepts connections and never answers. The
// pusher's memory and spool stay bounded, what is not taken is counted, and the program is recorded as before.
func TestStressHangingReceiver(t *testing.T) {
	if os.Getenv("HBTRACE_STRESS") == "" {
		t.Skip("takes four minutes: set HBTRACE_STRESS")
	}
	const pushes, spool = 240, 64 << 10 // 15 s apart, an hour
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close() // kept, and mute
		}
	}()
	s := startFlight(t, "--keep", "16M")
	waitFor(t, "a session", func() bool {
		out, _ := s.hbtrace(t, "ps")
		return len(out) > 0 && !strings.Contains(out, "no flight recorder")
	})
	temp := t.TempDir()
	cmd := exec.Command(testprog.Hbtrace(t), "push", "--to", "otlp://"+l.Addr().String(), "--every", "1s", "--spool", strconv.Itoa(spool))
	var said bytes.Buffer
	cmd.Stderr, cmd.Env = &said, append(os.Environ(), "TMPDIR="+temp)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var early, most, spooled int64
	defer func() {
		if t.Failed() {
			t.Logf("hbtrace push said %q", said.String())
		}
	}()
	begun := time.Now()
	for i := 0; time.Since(begun) < pushes*time.Second; i++ {
		time.Sleep(500 * time.Millisecond)
		rss := status(t, cmd.Process.Pid, "VmRSS")
		if i < pushes/2 {
			early = max(early, rss)
		}
		most = max(most, rss)
		var now int64
		files, _ := filepath.Glob(filepath.Join(temp, "hbtrace-push-*", "0*"))
		for _, f := range files {
			if st, err := os.Stat(f); err == nil {
				now += st.Size()
			}
		}
		spooled = max(spooled, now)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // requests are left: it fails, as checked below
	counts := regexp.MustCompile(`pushed (\d+) profiles.*requests: (\d+) sent, (\d+) dropped`).FindStringSubmatch(said.String())
	if counts == nil {
		t.Fatalf("hbtrace push said %q", said.String())
	}
	made, _ := strconv.Atoi(counts[1])
	dropped, _ := strconv.Atoi(counts[3])
	t.Logf("%d pushes, %d requests dropped; RSS %d kB in the first quarter, %d kB at most; spool %d bytes at most", made, dropped, early, most, spooled)
	if counts[2] != "0" || dropped < 2*made-1 { // profiles and metrics
		t.Errorf("%s sent, %d dropped of %d", counts[2], dropped, 2*made)
	}
	if spooled > spool {
		t.Errorf("the spool had %d bytes, its limit is %d", spooled, spool)
	}
	if most > early+early/4 {
		t.Errorf("the pusher's memory grew: %d kB, %d kB in the first quarter", most, early)
	}
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.finish(t)
}

// status is a number of /proc/PID/status, in its unit.
func status(t *testing.T, pid int, key string) int64 {
	t.Helper()
	all, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		if rest, ok := strings.CutPrefix(line, key+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no %s in the status of process %d", key, pid)
	return 0
}
