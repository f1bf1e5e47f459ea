// Command ring measures the ring between the recorded threads and the recorder: how much is lost at a given rate, and
// what reading costs. The writers are threads of C processes that use the agent's own producer; the reader is
// concurrentring's, alone and with collector/assemble behind it. Run it from the repository:
//
//	go run ./bench/ring                          2 million records a second from 64 threads
//	go run ./bench/ring -kill                    … in four processes, one of which is killed each second
//	go run ./bench/ring -rate 0                  as fast as they can
//	go run ./bench/ring -profile cpu.pb.gz       with a profile of the reader
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/collector/assemble"
	"github.com/hbtrace/hbtrace/concurrentring"
	"github.com/hbtrace/hbtrace/segment"
	"github.com/hbtrace/hbtrace/stacktable"
	"github.com/hbtrace/hbtrace/trace"
)

type options struct {
	rate    float64
	threads int
	seconds float64
	kill    bool
	rounds  int
	profile string
	bytes   int
	nice    bool
}

func main() {
	var o options
	flag.Float64Var(&o.rate, "rate", 2e6, "records a second of all threads together; 0: as many as they can")
	flag.IntVar(&o.threads, "threads", 64, "writing threads")
	flag.Float64Var(&o.seconds, "seconds", 5, "length of a round")
	flag.BoolVar(&o.kill, "kill", false, "spread the threads over four processes, kill one each second with SIGKILL and start another")
	flag.IntVar(&o.rounds, "rounds", 1, "rounds of each kind, interleaved")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of this process to the file")
	flag.IntVar(&o.bytes, "ring", 8<<20, "bytes of the ring: the recorder's default")
	flag.BoolVar(&o.nice, "nice", false, "the writers run at nice 10, so that the reader is not kept waiting")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "ring:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	exe, err := build()
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(exe))
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Printf("%-9s %12s %12s %9s %10s %9s %9s %9s %8s %7s\n", "kind", "written/s", "read", "lost", "lost %", "missing", "ns/rec", "all ns", "passes", "broken")
	for range o.rounds {
		for _, kind := range []string{"read", "assemble"} {
			if err := round(o, exe, kind); err != nil {
				return err
			}
		}
	}
	return nil
}

// build makes the writer, with the agent's side of it in a library built as the agent is.
func build() (string, error) {
	if _, err := os.Stat("bench/ring/writer.c"); err != nil {
		return "", errors.New("no bench/ring/writer.c here: run this from the repository's top")
	}
	dir, err := os.MkdirTemp("", "hbtrace-ring-")
	if err != nil {
		return "", err
	}
	side, exe := filepath.Join(dir, "side.so"), filepath.Join(dir, "writer")
	agentFlags := []string{"-std=gnu11", "-O2", "-shared", "-nostdlib", "-ffreestanding", "-fPIC", "-fvisibility=hidden",
		"-ftls-model=initial-exec", "-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fomit-frame-pointer", "-fno-tree-loop-distribute-patterns",
		"-fno-strict-aliasing", "-fno-exceptions", "-Wl,-z,now"}
	for _, args := range [][]string{
		append(agentFlags, "-I.", "-o", side, "bench/ring/side.c"),
		{"-O2", "-pthread", "-o", exe, "bench/ring/writer.c", side},
	} {
		if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			os.RemoveAll(dir)
			return "", fmt.Errorf("gcc %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return exe, nil
}

// writers are the processes that are writing now.
type writers struct {
	o     options
	exe   string
	seg   *os.File
	procs []*exec.Cmd
	gone  map[uint32]bool // by pid
}

func (w *writers) start(threads int, rate, seconds float64) error {
	if rate == 0 {
		rate = 1e9
	}
	args := []string{w.exe, strconv.Itoa(threads), fmt.Sprint(rate), fmt.Sprint(seconds)}
	if w.o.nice {
		args = append([]string{"nice", "-n", "10"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.ExtraFiles = []*os.File{w.seg}
	cmd.Stderr = os.Stderr
	w.procs = append(w.procs, cmd)
	return cmd.Start()
}

// killOldest kills the process that has written longest and starts another in its place.
func (w *writers) killOldest(threads int, rate float64) error {
	p := w.procs[0]
	w.procs = w.procs[1:]
	if err := p.Process.Kill(); err != nil {
		return err
	}
	p.Wait()
	w.gone[uint32(p.Process.Pid)] = true
	return w.start(threads, rate, 0)
}

func round(o options, exe, kind string) error {
	seg, err := segment.Create(segment.Config{RingBytes: o.bytes / 8})
	if err != nil {
		return err
	}
	defer seg.Close()
	fd, err := syscall.Dup(seg.FD())
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "segment")
	defer f.Close()
	h := seg.Header()
	h.HeartbeatNs.Store(uint64(segment.Now()))
	h.Recording.Store(1)

	reader := concurrentring.NewReader(seg)
	records, events := 0, 0
	take := func(_ int, rec []byte) { records++ }
	endPass := func() {}
	var asm *assemble.Assembler
	if kind == "assemble" {
		asm = assemble.New(assemble.Config{Segment: seg, Stacks: stacktable.New(stacktable.Options{}), Sink: func(*trace.Event) { events++ }})
		take = func(_ int, rec []byte) { records++; asm.Record(rec) }
		endPass = asm.EndPass
	}

	w := &writers{o: o, exe: exe, seg: f, gone: map[uint32]bool{}}
	defer func() {
		for _, p := range w.procs {
			if p.ProcessState == nil {
				p.Process.Kill()
				p.Wait()
			}
		}
	}()
	processes, length := 1, o.seconds
	if o.kill {
		processes, length = 4, 0
	}
	each, rate := o.threads/processes, o.rate/float64(processes)
	for range processes {
		if err := w.start(each, rate, length); err != nil {
			return err
		}
	}

	// The reader keeps the pace of the recorder: a pass after 2 to 20 ms, sooner when much came in.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var own, all unix.Rusage
	unix.Getrusage(unix.RUSAGE_THREAD, &own)
	unix.Getrusage(unix.RUSAGE_SELF, &all)
	cpu, allCPU := used(own), used(all)
	const least, most = 2 * time.Millisecond, 20 * time.Millisecond
	pause, passes := least, 0
	begun, nextKill := time.Now(), time.Second
	for time.Since(begun).Seconds() < o.seconds+0.2 {
		time.Sleep(pause)
		_, bytes := reader.Drain(take)
		endPass()
		passes++
		if bytes >= o.bytes/8 {
			pause = least
		} else {
			pause = min(2*pause, most)
		}
		if t := time.Since(begun); o.kill && t > nextKill && t.Seconds() < o.seconds {
			nextKill += time.Second
			if err := w.killOldest(each, rate); err != nil {
				return err
			}
			reader.ReapLocks(func(uid uint32) bool {
				return !w.gone[seg.Proc(int(seg.Thread(int(uid-1)).Proc.Load())).PID.Load()]
			})
		}
		if o.kill && time.Since(begun).Seconds() > o.seconds {
			break
		}
	}
	for _, p := range w.procs {
		if o.kill {
			p.Process.Kill()
		}
		if err := p.Wait(); err != nil && !o.kill {
			return fmt.Errorf("writer: %w", err)
		}
	}
	elapsed := time.Since(begun).Seconds()
	reader.Drain(take)
	endPass()
	unix.Getrusage(unix.RUSAGE_THREAD, &own)
	unix.Getrusage(unix.RUSAGE_SELF, &all)
	cpu, allCPU = used(own)-cpu, used(all)-allCPU

	written, lost := 0, 0
	for i := range seg.HighThreads() {
		t := seg.Thread(i)
		written += int(t.Seq.Load())
		lost += int(t.Lost.Load())
	}
	// A killed thread may have numbered a record that it never wrote: one for each at most.
	missing := written - lost - records
	fmt.Printf("%-9s %12.0f %12d %9d %10.4f %9d %9.1f %9.1f %8d %7d", kind, float64(written)/elapsed, records, lost, 100*float64(lost)/float64(max(written, 1)), missing,
		cpu.Seconds()*1e9/float64(max(records, 1)), allCPU.Seconds()*1e9/float64(max(records, 1)), passes, reader.Stats().Broken)
	if asm != nil {
		asm.Flush()
		s := asm.Stats()
		fmt.Printf("  %d events, %d made no sense, %d gaps, %d lost", events, s.Broken, s.Gaps, s.Lost)
	}
	if n := reader.Stats().Reaped; n > 0 {
		fmt.Printf("  %d locks freed", n)
	}
	fmt.Println()
	if most := (len(w.gone) + processes) * each; missing < 0 || !o.kill && missing != 0 || missing > most {
		return fmt.Errorf("%d records written, %d of them lost and %d read: %d are missing", written, lost, records, missing)
	}
	return nil
}

func used(u unix.Rusage) time.Duration {
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
