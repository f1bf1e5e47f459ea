package main

// This file owns what stacks are compared by: mappings, hbtrace's samples, and perf's at the delivery of a signal.

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/tracefile"
)

// mappings are a process's executable ones at a moment.
type mappings struct{ m []mapping }

type mapping struct {
	lo, hi, bias uint64
	off          uint64 // in the file
	file         string
}

// fileName is what a mapped file is called here, whatever link it was found by.
func fileName(path string) string {
	path = strings.TrimSuffix(path, " (deleted)")
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return filepath.Base(path)
}

func (m *mappings) add(lo, hi, offset, path string) error {
	var x mapping
	for _, v := range []struct {
		to *uint64
		s  string
	}{{&x.lo, lo}, {&x.hi, hi}, {&x.off, offset}} {
		n, err := strconv.ParseUint(v.s, 16, 64)
		if err != nil {
			return err
		}
		*v.to = n
	}
	x.file = fileName(path)
	x.bias = x.lo - x.off
	if f, err := elf.Open(path); err == nil {
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && x.off >= p.Off&^0xfff && x.off < p.Off+p.Filesz {
				x.bias = x.lo - (x.off + p.Vaddr - p.Off)
			}
		}
	}
	m.m = append(m.m, x)
	return nil
}

// at is where an address lies; in no file it stays as it is.
func (m *mappings) at(addr uint64) place {
	for _, x := range m.m {
		if addr >= x.lo && addr < x.hi {
			return place{x.file, addr - x.bias}
		}
	}
	return place{"", addr}
}

// inFile turns an offset in a file into an address.
func (m *mappings) inFile(file string, off uint64) place {
	for _, x := range m.m {
		if x.file == file && off >= x.off && off < x.off+x.hi-x.lo {
			return place{file, x.lo - x.off - x.bias + off}
		}
	}
	return place{file, off}
}

// taken is a sample by signal.
type taken struct {
	from, to int64 // ns of CLOCK_MONOTONIC; equal ones are merged
	stack    []place
	cut      bool
}

// samplesByThread reads a recording's asynchronous samples.
func samplesByThread(path string) (map[int][]taken, error) {
	r, err := tracefile.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	tids := map[trace.ThreadID]int{}
	for _, t := range r.Threads() {
		tids[t.ID] = t.TID
	}
	files := map[trace.ModuleID]string{}
	for _, m := range r.Modules() {
		files[m.ID] = fileName(m.Path)
	}
	out := map[int][]taken{}
	err = trace.Events(r, func(e *trace.Event) error {
		if e.Kind != trace.KindCPU && e.Kind != trace.KindGap || e.Stack == 0 || r.Node(e.Stack).How != trace.HowExact {
			return nil
		}
		x := taken{from: int64(e.Start), to: int64(e.Time), cut: e.Flags&(trace.FlagStackCut|trace.FlagStackOmitted) != 0}
		for id := e.Stack; id != 0; id = r.Node(id).Parent {
			n := r.Node(id)
			x.stack = append(x.stack, place{files[n.Addr.Module], n.Addr.Off})
		}
		out[tids[e.Thread]] = append(out[tids[e.Thread]], x)
		return nil
	})
	return out, err
}

// findSample finds the sample that the handler took when the thread was let go on.
func findSample(samples []taken, s *stop, leaf place) (taken, bool) {
	for _, x := range samples {
		if x.from <= s.next && x.to >= s.gone && x.stack[0] == leaf {
			return x, true
		}
	}
	return taken{}, false
}

// perfOfSignals is a perf that records the delivery of sampling signals with their user stacks.
type perfOfSignals struct {
	path string
	cmd  *exec.Cmd
	said bytes.Buffer
}

func startPerf(path, how string, pid int) (*perfOfSignals, error) {
	for _, f := range []string{".ctl", ".ack"} {
		os.Remove(path + f)
		if err := syscall.Mkfifo(path+f, 0o600); err != nil {
			return nil, err
		}
	}
	// Both ends open, so that neither side waits for the other.
	ctl, err := os.OpenFile(path+".ctl", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	ack, err := os.OpenFile(path+".ack", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer ack.Close()
	p := &perfOfSignals{path: path, cmd: exec.Command("perf", "record", "-q", "-k", "CLOCK_MONOTONIC", "-e", "signal:signal_deliver",
		"--filter", fmt.Sprintf("sig==%d", syscall.SIGURG), "--call-graph", how, "-p", strconv.Itoa(pid), "-D", "-1",
		"--control", "fifo:"+path+".ctl,"+path+".ack", "-o", path)}
	p.cmd.Stdout, p.cmd.Stderr = &p.said, &p.said
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := ctl.WriteString("enable\n"); err != nil {
		return nil, err
	}
	answered := make(chan error, 1)
	go func() { _, err := ack.Read(make([]byte, 16)); answered <- err }()
	over := make(chan error, 1)
	go func() { over <- p.cmd.Wait() }()
	select {
	case err := <-answered:
		go func() { <-over }()
		return p, err
	case err := <-over:
		return nil, fmt.Errorf("%v: %s", err, p.said.String())
	}
}

type perfStack struct {
	time  int64
	stack []place // offsets in files
}

// stacks reads what perf recorded, when the process that it watched has ended.
func (p *perfOfSignals) stacks() (map[int][]perfStack, error) {
	if _, err := await("perf", func() (struct{}, error) {
		if err := p.cmd.Process.Signal(syscall.Signal(0)); err == nil {
			return struct{}{}, fmt.Errorf("perf record still runs")
		}
		return struct{}{}, nil
	}); err != nil {
		return nil, err
	}
	cmd := exec.Command("perf", "script", "-i", p.path, "--ns", "--no-inline", "-F", "tid,time,ip,sym,dso")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("perf script: %w\n%s", err, &stderr)
	}
	out := map[int][]perfStack{}
	tid := -1
	sc := bufio.NewScanner(bytes.NewReader(text))
	for sc.Scan() {
		line := sc.Text()
		w := strings.Fields(line)
		switch {
		case len(w) == 0:
		case line[0] != '\t' && len(w) == 2 && strings.HasSuffix(w[1], ":"): // "tid seconds.nanoseconds:"
			if tid, err = strconv.Atoi(w[0]); err != nil {
				return nil, fmt.Errorf("perf script: %q: %w", line, err)
			}
			s, ns, _ := strings.Cut(strings.TrimSuffix(w[1], ":"), ".")
			t, err := strconv.ParseInt(s+ns, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("perf script: %q: %w", line, err)
			}
			out[tid] = append(out[tid], perfStack{time: t})
		case tid >= 0: // "offset function (file)"
			off, err := strconv.ParseUint(w[0], 16, 64)
			if err != nil {
				return nil, fmt.Errorf("perf script: %q: %w", line, err)
			}
			file := strings.Trim(line[strings.LastIndexByte(line, '(')+1:], "()")
			if last := &out[tid][len(out[tid])-1]; off>>47 == 0 { // not the kernel's
				last.stack = append(last.stack, place{fileName(file), off})
			}
		}
	}
	return out, sc.Err()
}

func (p perfStack) places(m *mappings) []place {
	out := make([]place, len(p.stack))
	for i, a := range p.stack {
		out[i] = m.inFile(a.file, a.addr)
	}
	return withoutAgent(out)
}

// samePerf compares with callers that may be the call instead of the return address: perf takes one off with dwarf. It is
// not asked for what libc and the loader do before main: three frames that its stack dumps often do not reach.
func samePerf(truth, got []place) bool {
	if n := len(truth); n > 3 && len(got) < n && len(got) >= n-3 && truth[n-2].file == truth[n-3].file {
		truth = truth[:len(got)]
	}
	return slices.EqualFunc(truth, got, func(a, b place) bool { return a.file == b.file && (a.addr == b.addr || a.addr == b.addr+1) })
}
