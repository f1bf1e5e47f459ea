package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/attach"
	"github.com/hbtrace/hbtrace/collector"
)

type config struct {
	dir          string
	cycles       int
	each, record time.Duration
}

func (c *config) all(names []string) error {
	fmt.Printf("%-16s %7s %6s %9s %9s %9s %7s %9s %9s %9s  %s\n", "subject", "cycles", "stops", "hold p50", "p99", "max", "errors", "p99 bare", "cycles", "recorded", "before and after")
	for _, s := range subjects() {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		if err := c.one(&s); err != nil {
			fmt.Printf("%-16s left out: %v\n", s.name, err)
		}
	}
	return nil
}

// Phases of a subject's life.
const (
	quiet = iota
	cycling
	recording
	phases
)

// clients ask a server all the time.
type clients struct {
	phase  atomic.Int32
	mu     sync.Mutex
	took   [phases][]time.Duration
	errs   []error
	stop   chan struct{}
	worker sync.WaitGroup
}

func (k *clients) run(s *subject, port int) {
	const connections = 4
	for range connections {
		k.worker.Go(func() {
			c, err := dial(port)
			for err == nil {
				select {
				case <-k.stop:
					c.Close()
					return
				default:
				}
				phase, begun := k.phase.Load(), time.Now()
				c.SetDeadline(begun.Add(time.Minute))
				if err = s.talk(c); err == nil {
					k.mu.Lock()
					k.took[phase] = append(k.took[phase], time.Since(begun))
					k.mu.Unlock()
				}
				time.Sleep(200 * time.Microsecond)
			}
			k.mu.Lock()
			k.errs = append(k.errs, err)
			k.mu.Unlock()
		})
	}
}

func (c *config) one(s *subject) error {
	dir := filepath.Join(c.dir, strings.Fields(s.name)[0])
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	args, err := s.command(dir, port)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "out")
	started, err := s.start(args, dir, out)
	if err != nil {
		return err
	}
	defer syscall.Kill(started, syscall.SIGKILL)
	if err := s.await(port, started); err != nil {
		return err
	}
	k := &clients{stop: make(chan struct{})}
	if s.talk != nil {
		k.run(s, port)
	}
	time.Sleep(c.record)
	pid := s.busiest(started)
	before := measure(pid)
	var holds []time.Duration
	k.phase.Store(cycling)
	done := 0
	for ; done < c.cycles; done++ {
		h, err := record(filepath.Join(dir, "x.hbt"), pid, c.each)
		if err != nil {
			return fmt.Errorf("cycle %d: %w", done, err)
		}
		holds = append(holds, h...)
	}
	k.phase.Store(recording)
	if _, err := record(filepath.Join(dir, "x.hbt"), pid, c.record); err != nil {
		return err
	}
	var asleep *attach.Asleep
	if _, err := attach.Detach(pid); err != nil && !errors.As(err, &asleep) {
		return err
	}
	k.phase.Store(quiet)
	after := measure(pid)
	close(k.stop)
	k.worker.Wait()
	result := strconv.Itoa(len(k.errs))
	if s.talk == nil {
		syscall.Kill(started, syscall.SIGTERM)
		for begun := time.Now(); alive(started) && time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		}
		text, _ := os.ReadFile(out)
		if result = strings.TrimSpace(string(text)); result == "" {
			result = "it said nothing at its end"
		}
	}
	slices.Sort(holds)
	fmt.Printf("%-16s %7d %6.1f %9s %9s %9s %7s %9s %9s %9s  %s\n", s.name, done, float64(len(holds))/float64(done), short(at(holds, 0.5)), short(at(holds, 0.99)),
		short(at(holds, 1)), result, short(p99(k.took[quiet])), short(p99(k.took[cycling])), short(p99(k.took[recording])), before.to(after))
	for _, err := range k.errs {
		fmt.Printf("  client: %v\n", err)
	}
	return nil
}

// start starts the subject as nobody's child of ours: what waits for a child would also take its stops.
func (s *subject) start(args []string, dir, out string) (pid int, err error) {
	c := exec.Command("sh", append([]string{"-c", `cd "$1"; o="$2"; shift 2; "$@" >"$o" 2>/dev/null </dev/null & echo $!`, "sh", dir, out}, args...)...)
	if s.user != 0 {
		os.Chown(dir, int(s.user), int(s.user))
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: s.user, Gid: s.user}}
	}
	b, err := c.Output()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// alive: the process runs.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(b, []byte(") Z "))
}

// await waits until the subject answers, or has its threads.
func (s *subject) await(port, pid int) error {
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		if s.talk == nil {
			if tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); len(tasks) >= s.threads {
				return nil
			}
			continue
		}
		if c, err := dial(port); err == nil {
			c.SetDeadline(time.Now().Add(10 * time.Second))
			err := s.talk(c)
			c.Close()
			if err == nil {
				return nil
			}
		}
	}
	return errors.New("it does not answer")
}

// busiest is the process that does the work: of PostgreSQL, a backend.
func (s *subject) busiest(pid int) int {
	if s.name != "PostgreSQL" {
		return pid
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	best, most := pid, int64(-1)
	for _, f := range strings.Fields(string(children)) {
		stat, _ := os.ReadFile("/proc/" + f + "/stat")
		if x := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(x) > 12 {
			used, _ := strconv.ParseInt(x[11], 10, 64)
			if used > most {
				best, _ = strconv.Atoi(f)
				most = used
			}
		}
	}
	return best
}

// record attaches for a time, and returns how long threads were stopped.
func record(path string, pid int, d time.Duration) ([]time.Duration, error) {
	r, err := collector.Attach(context.Background(), collector.Options{Output: path, Duration: d}, []int{pid})
	if r == nil {
		return nil, err
	}
	return r.Holds, err
}

// state is what is compared before and after.
type state struct {
	descriptors int
	rss         int64 // bytes
}

func measure(pid int) (s state) {
	fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	s.descriptors = len(fds)
	statm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if f := strings.Fields(string(statm)); len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		s.rss = pages * int64(os.Getpagesize())
	}
	return s
}

func (s state) to(t state) string {
	return fmt.Sprintf("%d → %d descriptors, RSS %+d kB", s.descriptors, t.descriptors, (t.rss-s.rss)>>10)
}

func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return at(took, 0.99)
}

func short(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(time.Microsecond).String()
}
