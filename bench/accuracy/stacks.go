package main

// This file owns whole stacks: gdb holds the program at each sampling signal, before its handler runs, and walks the
// stack; hbtrace's handler then walks the same stack, and perf takes its own at the delivery of the same signal.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stackSubject is a program whose stacks are looked at; it must run for longer than the stops take.
type stackSubject struct {
	name, what string
	argv       []string
	load       []string // a client, run next to it as often as it ends
}

const (
	stacksSQL = `with recursive n(i, x) as (select 1, 7 union all select i+1, (x*1103515245+12345) & 2147483647 from n where i < 20000000)
select count(*), max(y), group_concat(distinct z) from (select x % 1000 as y, substr(printf('%08x', x), 1, 1) as z from n order by x % 7919, x);`
	stacksPython = `
import json, re, random
random.seed(3)
def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)
for i in range(1000000):
    d = [{'k': random.random(), 'v': str(j)} for j in range(300)]
    d.sort(key=lambda e: e['k'])
    json.loads(json.dumps(d))
    re.findall(r'(\d+)[^"]*"v"', json.dumps(d))
    fib(12)
`
	redisPort = "17391"
)

func (b *bench) stackSubjects() []stackSubject {
	return []stackSubject{
		{"cxx", "C++: qsort and std::sort callbacks, exceptions, std::map, printf, recursion", []string{b.program("mixed"), "100000000"}, nil},
		{"sqlite3", "sorting and aggregates", []string{"sqlite3", ":memory:", stacksSQL}, nil},
		{"python3", "json, re, sort with a key, recursion", []string{"/usr/bin/python3", "-c", stacksPython}, nil},
		{"redis", "a list, a sorted set, scripts; under redis-benchmark",
			[]string{"redis-server", "--port", redisPort, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.dir},
			[]string{"redis-benchmark", "-q", "-p", redisPort, "-n", "200000", "-c", "10", "-P", "50", "-t", "set,lpush,zadd,lrange_100"}},
	}
}

// place is an address in a file, which hbtrace and gdb have in common.
type place struct {
	file string
	addr uint64 // ELF virtual address
}

// stop is one moment that the program was held at.
type stop struct {
	tid        int
	held, gone int64 // ns of CLOCK_MONOTONIC
	stack      []uint64
	maps       *mappings
	next       int64 // when the thread was held again
}

// agreement counts stacks that are frame by frame the true one, of those that were taken.
type agreement struct{ equal, taken int }

func (a agreement) String() string {
	if a.taken == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f %% of %d", 100*float64(a.equal)/float64(a.taken), a.taken)
}

func (b *bench) stacks() error {
	if err := command("g++", "-std=c++17", "-O2", "-fomit-frame-pointer", "-o", b.program("mixed"), "unwind/testdata/mixed.cc").Run(); err != nil {
		return fmt.Errorf("compiling mixed.cc: %w", err)
	}
	fmt.Printf("Stacks: up to %d stops a program; whole stacks that equal gdb's at the same stop, address by address\n\n", b.stops)
	fmt.Println("| program | stops | hbtrace | perf --call-graph dwarf | perf --call-graph fp | why not |")
	fmt.Println("|---|---|---|---|---|---|")
	raw, err := os.Create(b.file("stacks.txt"))
	if err != nil {
		return err
	}
	defer raw.Close()
	for _, s := range b.stackSubjects() {
		if b.only != "" && s.name != b.only {
			continue
		}
		if _, err := exec.LookPath(s.argv[0]); err != nil {
			fmt.Printf("| %s | not here | | | | |\n", s.name)
			continue
		}
		if err := b.stacksOf(s, raw); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	fmt.Println()
	return nil
}

func (b *bench) stacksOf(s stackSubject, raw io.Writer) error {
	base := b.file("stacks-%s", s.name)
	for _, f := range []string{".pid", ".gdb.attached"} {
		os.Remove(base + f)
	}
	os.Remove(base + ".go")
	if err := syscall.Mkfifo(base+".go", 0o600); err != nil {
		return err
	}
	// The shell waits until it is watched, and becomes the program.
	argv := []string{"run", "-q", "-F", strconv.Itoa(b.freq), "-e", "cpu", "-o", base, "--", "sh", "-c",
		`echo $$ >"$0.new"; mv "$0.new" "$0.pid"; read x <"$0.go"; exec "$@" >/dev/null`, base}
	run := exec.Command(b.hbtrace, append(argv, s.argv...)...)
	if err := run.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	defer run.Process.Kill()
	pid, err := await(base+".pid", func() (int, error) {
		text, err := os.ReadFile(base + ".pid")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(string(text)))
	})
	if err != nil {
		return err
	}
	perfs := map[string]*perfOfSignals{}
	for _, how := range []string{"dwarf", "fp"} {
		if perfs[how], err = startPerf(base+"."+how, how, pid); err != nil {
			fmt.Fprintf(os.Stderr, "without perf --call-graph %s: %v\n", how, err)
		}
	}
	gdb := exec.Command("gdb", "-nx", "-q", "-batch", "-ex", fmt.Sprintf("python pid, stops, out = %d, %d, %q", pid, b.stops, base+".gdb"),
		"-x", "bench/accuracy/programs/stops.py")
	var said strings.Builder
	gdb.Stdout, gdb.Stderr = &said, &said
	if err := gdb.Start(); err != nil {
		return err
	}
	defer gdb.Process.Kill()
	if _, err := await("gdb", func() (struct{}, error) { _, err := os.Stat(base + ".gdb.attached"); return struct{}{}, err }); err != nil {
		return fmt.Errorf("%w\n%s", err, &said)
	}
	if err := os.WriteFile(base+".go", []byte("\n"), 0); err != nil {
		return err
	}
	watched := make(chan struct{})
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		if s.load != nil { // redis-benchmark that finds nobody spins for ever
			await("redis", func() (struct{}, error) {
				c, err := net.Dial("tcp", "127.0.0.1:"+redisPort)
				if err == nil {
					c.Close()
				}
				return struct{}{}, err
			})
		}
		for s.load != nil {
			select {
			case <-watched:
				return
			default:
			}
			client := exec.Command(s.load[0], s.load[1:]...)
			if client.Start() != nil {
				return
			}
			over := make(chan struct{})
			go func() { client.Wait(); close(over) }()
			select {
			case <-watched:
				client.Process.Kill()
				<-over
			case <-over:
			}
		}
	}()
	tooLong := time.AfterFunc(5*time.Minute, func() { syscall.Kill(pid, syscall.SIGKILL) }) // then gdb ends as well
	err = gdb.Wait()
	tooLong.Stop()
	close(watched)
	<-loaded
	if err != nil {
		return fmt.Errorf("gdb: %w\n%s", err, &said)
	}
	fmt.Fprintf(raw, "%s: gdb said: %s\n", s.name, &said)
	<-ended // the program was killed: its status says nothing
	stops, err := readStops(base + ".gdb")
	if err != nil {
		return err
	}
	if len(stops) == 0 {
		return fmt.Errorf("gdb saw no stop\n%s", &said)
	}
	return b.compareStacks(s, base, stops, perfs, raw)
}

// await polls for something that another process does.
func await[T any](what string, f func() (T, error)) (v T, err error) {
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if v, err = f(); err == nil || time.Now().After(limit) {
			if err != nil {
				err = fmt.Errorf("%s: %w", what, err)
			}
			return v, err
		}
	}
}

// compareStacks looks up each stop in what the others recorded, and prints the program's line.
func (b *bench) compareStacks(s stackSubject, base string, stops []stop, perfs map[string]*perfOfSignals, raw io.Writer) error {
	samples, err := samplesByThread(base + ".hbt")
	if err != nil {
		return err
	}
	var ours agreement
	ofPerf := map[string]*agreement{"dwarf": {}, "fp": {}}
	reasons := map[string]int{}
	stacks := map[string]map[int][]perfStack{}
	for how, p := range perfs {
		if p == nil {
			continue
		}
		if stacks[how], err = p.stacks(); err != nil {
			return err
		}
	}
	inAgent, unmatched := 0, 0
	for i := range stops {
		st := &stops[i]
		truth := st.places()
		if len(truth) == 0 || isAgent(truth[0].file) {
			inAgent++ // the sample is deferred to the end of our own section: another stack
			continue
		}
		truth = withoutAgent(truth)
		if got, ok := findSample(samples[st.tid], st, truth[0]); !ok {
			unmatched++
			fmt.Fprintf(raw, "%s: stop %d at %v: no sample\n", s.name, i, truth[0])
		} else {
			ours.taken++
			if why := differ(truth, got.stack, got.cut); why == "" {
				ours.equal++
			} else {
				reasons[why]++
				fmt.Fprintf(raw, "%s: stop %d: %s\n  gdb     %v\n  hbtrace %v\n", s.name, i, why, truth, got.stack)
			}
		}
		for how, of := range ofPerf {
			for _, p := range stacks[how][st.tid] {
				if p.time < st.gone || p.time > st.next {
					continue
				}
				of.taken++
				if samePerf(truth, p.places(st.maps)) {
					of.equal++
				} else if how == "dwarf" {
					fmt.Fprintf(raw, "%s: stop %d: perf dwarf\n  gdb  %v\n  perf %v\n", s.name, i, truth, p.places(st.maps))
				}
				break
			}
		}
	}
	why := make([]string, 0, len(reasons))
	for r, n := range reasons {
		why = append(why, fmt.Sprintf("%s %d", r, n))
	}
	slices.Sort(why)
	if inAgent > 0 {
		why = append(why, fmt.Sprintf("left out: in the agent %d", inAgent))
	}
	if unmatched > 0 {
		why = append(why, fmt.Sprintf("left out: no sample %d", unmatched))
	}
	fmt.Printf("| %s: %s | %d | %v | %v | %v | %s |\n", s.name, s.what, len(stops), ours, ofPerf["dwarf"], ofPerf["fp"], strings.Join(why, ", "))
	return nil
}

// differ says how a stack is not the true one, "" when it is.
func differ(truth, got []place, cut bool) string {
	if slices.Equal(truth, got) {
		return ""
	}
	n := 0
	for n < len(truth) && n < len(got) && truth[n] == got[n] {
		n++
	}
	switch {
	case n == len(got) && cut:
		return "cut"
	case n == len(got):
		return "ends early"
	case n == len(truth):
		return "goes on"
	case n <= 1:
		return "the caller"
	}
	return "a frame above"
}

func isAgent(file string) bool { return strings.HasPrefix(file, "agent-") }

// withoutAgent leaves out the agent's own frames; below the one that started a thread there is nothing to know.
func withoutAgent(stack []place) []place {
	var out []place
	for i, p := range stack {
		if !isAgent(p.file) {
			out = append(out, p)
		} else if i > 0 && len(stack)-i <= 3 { // started by ours: then libc's start_thread and clone3
			break
		}
	}
	return out
}

// readStops reads what stops.py wrote.
func readStops(path string) ([]stop, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var stops []stop
	var maps *mappings
	before := "stop"
	last := map[int]int{}
	sc := bufio.NewScanner(f)
	for sc.Buffer(nil, 1<<20); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) < 5 {
			return nil, fmt.Errorf("%s: %q", path, sc.Text())
		}
		switch w[0] {
		case "map":
			if before == "stop" {
				maps = &mappings{}
			}
			if err := maps.add(w[1], w[2], w[3], strings.TrimSuffix(strings.Join(w[4:], " "), " (deleted)")); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, sc.Text(), err)
			}
		case "stop":
			s := stop{maps: maps, next: 1<<63 - 1}
			_, err := fmt.Sscan(strings.Join(w[1:4], " "), &s.tid, &s.held, &s.gone)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", path, sc.Text(), err)
			}
			for _, a := range w[4:] {
				v, err := strconv.ParseUint(a, 16, 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %q: %w", path, sc.Text(), err)
				}
				s.stack = append(s.stack, v)
			}
			if i, ok := last[s.tid]; ok {
				stops[i].next = s.held
			}
			last[s.tid] = len(stops)
			stops = append(stops, s)
		}
		before = w[0]
	}
	return stops, sc.Err()
}

func (s *stop) places() []place {
	out := make([]place, 0, len(s.stack))
	for _, a := range s.stack {
		p := s.maps.at(a)
		if p.file == "" { // gdb went on behind the loader's first frame, into what is no code
			break
		}
		out = append(out, p)
	}
	return out
}
