package collector

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/collector/assemble"
)

// BenchmarkFirstTables is how long a program would wait at its start for its unwind tables (letGo): as the first of a session that
// maps its files, with an empty directory of kept tables and with what the session before left in it, in turns; and as a later one,
// whose files are known. What it maps is what it has mapped when it is stopped here: a little more than at its start.
func BenchmarkFirstTables(b *testing.B) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"redis", []string{"redis-server", "--port", "0", "--unixsocket", "socket", "--save", ""}},
		{"python3", []string{"/usr/bin/python3", "-c", "import time; print(flush=True); time.sleep(1000)"}},
		{"node", []string{"node", "-e", "console.log(); setInterval(() => {}, 1000000)"}},
		{"cc1", []string{cc1(), "-version", "-", "-o", "/dev/null"}},
	} {
		b.Run("program="+c.name, func(b *testing.B) {
			path, err := exec.LookPath(c.args[0])
			if err != nil {
				b.Skipf("needs %s", c.name)
			}
			cmd := exec.Command(path, c.args[1:]...)
			cmd.Dir = b.TempDir()
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			cmd.Stderr = cmd.Stdout
			if _, err := cmd.StdinPipe(); err != nil {
				b.Fatal(err)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			defer func() {
				cmd.Process.Kill()
				io.Copy(io.Discard, out)
				cmd.Wait()
			}()
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil { // it runs, with its libraries
				b.Fatal(err)
			}
			exe, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "exe"))
			entries, err := assemble.ReadMaps(cmd.Process.Pid)
			if err != nil || len(entries) == 0 {
				b.Fatalf("%s maps nothing (%v)", exe, err)
			}
			b.Run("process=first", func(b *testing.B) {
				type sums struct{ worst, cpu, elapsed time.Duration }
				var cold, warm sums
				session := func(dir string, s *sums) {
					b.Setenv("HBTRACE_UNWIND_CACHE", dir)
					t, err := newTables(4, new(notes))
					if err != nil {
						b.Fatal(err)
					}
					runtime.GC() // what another session left is not this one's
					from, used := time.Now(), cpuTime()
					t.publish(cmd.Process.Pid, 0, 1)
					took := time.Since(from)
					s.worst, s.elapsed, s.cpu = max(s.worst, took), s.elapsed+took, s.cpu+cpuTime()-used
					if len(t.lists[0].modules) == 0 {
						b.Fatal("nothing was published")
					}
					t.close()
				}
				for b.Loop() {
					dir := b.TempDir()
					session(dir, &cold)
					session(dir, &warm)
				}
				for name, s := range map[string]sums{"cold": cold, "warm": warm} {
					b.ReportMetric(float64(s.worst.Microseconds()), name+"-worst-µs")
					b.ReportMetric(float64(s.cpu.Microseconds())/float64(b.N), name+"-cpu-µs")
					b.ReportMetric(float64(s.elapsed.Microseconds())/float64(b.N), name+"-µs")
				}
			})
			b.Run("process=next", func(b *testing.B) {
				t, err := newTables(4, new(notes))
				if err != nil {
					b.Fatal(err)
				}
				defer t.close()
				t.publish(cmd.Process.Pid, 0, 1)
				var worst time.Duration
				for b.Loop() {
					b.StopTimer()
					t.withdraw(1)
					b.StartTimer()
					from := time.Now()
					t.publish(cmd.Process.Pid, 1, 2)
					worst = max(worst, time.Since(from))
				}
				b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
			})
		})
	}
}

// cc1 is gcc's C compiler proper, "" if there is none.
func cc1() string {
	out, err := exec.Command("gcc", "-print-prog-name=cc1").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
