package collector

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/collector/assemble"
)

// BenchmarkFirstTables is how long a program would wait at its start for its unwind tables (letGo): as the first of a session that
// maps its files, and as a later one, whose files are known. What it maps is what it has mapped when it is stopped here: a little more
// than at its start.
func BenchmarkFirstTables(b *testing.B) {
	for _, c := range []struct {
		name string
		args []string
	}{
		{"redis", []string{"redis-server", "--port", "0", "--unixsocket", "socket", "--save", ""}},
		{"python3", []string{"/usr/bin/python3", "-c", "import time; print(flush=True); time.sleep(1000)"}},
		{"node", []string{"node", "-e", "console.log(); setInterval(() => {}, 1000000)"}},
	} {
		b.Run("program="+c.name, func(b *testing.B) {
			path, err := exec.LookPath(c.args[0])
			if err != nil {
				b.Skipf("needs %s", c.args[0])
			}
			cmd := exec.Command(path, c.args[1:]...)
			cmd.Dir = b.TempDir()
			out, err := cmd.StdoutPipe()
			if err != nil {
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
				var worst, cpu time.Duration
				for b.Loop() {
					b.StopTimer()
					t, err := newTables(4, new(notes))
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					from, used := time.Now(), cpuTime()
					t.publish(cmd.Process.Pid, 0, 1)
					worst = max(worst, time.Since(from))
					cpu += cpuTime() - used
					b.StopTimer()
					if len(t.lists[0]) == 0 {
						b.Fatal("nothing was published")
					}
					t.close()
					b.StartTimer()
				}
				b.ReportMetric(float64(worst.Microseconds()), "worst-µs")
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
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

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
