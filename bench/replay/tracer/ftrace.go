package tracer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// ftrace.go: the kernel's ring buffer, a real one for each core. Each core of the replay gets a trace instance
// of its own, whose buffer on the processor that the core's threads are pinned to has the core's share; its
// buffers on other processors stay as small as the kernel makes them. Records go through trace_marker_raw: a
// system call, where the kernel's own trace points pay none. So its space compares with everybody's, its latency
// only with what else goes through that door.

type ftrace struct {
	dir       string // tracefs
	unmount   bool
	instances []string
	fds       []int
	cpus      []int
}

const (
	ftraceEntry  = 8 + 4 // struct trace_entry, and the marker's id
	ftraceHeader = 4     // of the ring buffer: type, length and time since the last event
)

func newFtrace(c Config) (_ Tracer, err error) {
	t := &ftrace{dir: "/sys/kernel/tracing"}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if _, err := os.Stat(filepath.Join(t.dir, "instances")); err != nil {
		t.dir, err = os.MkdirTemp("", "hbtrace-replay-tracefs-")
		if err != nil {
			return nil, err
		}
		if err := syscall.Mount("nodev", t.dir, "tracefs", 0, ""); err != nil {
			return nil, fmt.Errorf("mounting tracefs: %w (it takes root)", err)
		}
		t.unmount = true
	}
	for core := range c.Cores {
		cpu := CPU(core)
		dir := filepath.Join(t.dir, "instances", fmt.Sprintf("hbtrace-replay-%d-%d", os.Getpid(), core))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, fmt.Errorf("trace instance: %w (it takes root)", err)
		}
		t.instances = append(t.instances, dir)
		for _, s := range []struct{ file, value string }{
			{"tracing_on", "0"},
			{"options/overwrite", "1"},
			{"trace_clock", "mono"},
			{"buffer_size_kb", "1"},
			{fmt.Sprintf("per_cpu/cpu%d/buffer_size_kb", cpu), strconv.Itoa(c.Bytes / c.Cores >> 10)},
			{"tracing_on", "1"},
		} {
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0); err != nil {
				return nil, fmt.Errorf("setting %s of a trace instance to %s: %w", s.file, s.value, err)
			}
		}
		fd, err := syscall.Open(filepath.Join(dir, "trace_marker_raw"), syscall.O_WRONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("opening trace_marker_raw: %w", err)
		}
		t.fds = append(t.fds, fd)
		t.cpus = append(t.cpus, cpu)
	}
	return t, nil
}

func (t *ftrace) Producer(core, _ int) Producer { return &ftraceProducer{fd: t.fds[core]} }

type ftraceProducer struct {
	fd  int
	buf [4 + 256]byte // the id, which says nothing here, and the record
}

func (p *ftraceProducer) Write(rec []byte) bool {
	n := copy(p.buf[4:], rec) + 4
	_, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(p.fd), uintptr(unsafe.Pointer(&p.buf[0])), uintptr(n))
	return errno == 0
}

func (t *ftrace) Walk(f func(p []byte)) error {
	for i, dir := range t.instances {
		if err := os.WriteFile(filepath.Join(dir, "tracing_on"), []byte("0"), 0); err != nil {
			return err
		}
		if err := walkRaw(filepath.Join(dir, fmt.Sprintf("per_cpu/cpu%d/trace_pipe_raw", t.cpus[i])), f); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// walkRaw reads the pages of a ring buffer, whose form include/linux/ring_buffer.h and the file events/header_page
// give: time stamp (8), bytes of events with flags above bit 27 (8), events.
func walkRaw(path string, f func(p []byte)) error {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	page := make([]byte, os.Getpagesize())
	for {
		n, err := syscall.Read(fd, page)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN) || err == nil && n == 0:
			return nil
		case err != nil:
			return err
		case n < 16:
			return fmt.Errorf("page of %d bytes", n)
		}
		used := int(binary.LittleEndian.Uint64(page[8:]) & (1<<20 - 1))
		if used > n-16 {
			return fmt.Errorf("page of %d bytes says that it holds %d", n, used)
		}
		if err := walkPage(page[16:16+used], f); err != nil {
			return err
		}
	}
}

// walkPage goes through the events of a page. The first word's low 5 bits are the type: 29 padding, 30 a time
// extension and 31 an absolute time (8 bytes), 0 a length in the next word, else the length in words.
func walkPage(b []byte, f func(p []byte)) error {
	for len(b) >= 4 {
		kind := binary.LittleEndian.Uint32(b) & 31
		length, body := 0, 4
		switch kind {
		case 29:
			if len(b) < 8 {
				return nil
			}
			length = 4 + int(binary.LittleEndian.Uint32(b[4:]))
			body = length
		case 30, 31:
			length, body = 8, 8
		case 0:
			if len(b) < 8 {
				return errors.New("an event is cut off")
			}
			length, body = 4+int(binary.LittleEndian.Uint32(b[4:])), 8
		default:
			length = 4 + int(kind)*4
		}
		if length < body || length > len(b) || length < 4 {
			return fmt.Errorf("event of type %d has %d bytes of %d", kind, length, len(b))
		}
		if e := b[body:length]; len(e) >= ftraceEntry+16 {
			// Records are multiples of 8, an event is a multiple of 4: what the writer gave ends where this does.
			f(e[ftraceEntry : ftraceEntry+(len(e)-ftraceEntry)&^7])
		}
		b = b[length:]
	}
	return nil
}

// Footprint: events of more than 28 words have a word for their length.
func (t *ftrace) Footprint(n int) int {
	e := align(n+ftraceEntry, 4)
	if e > 28*4 {
		e += 4
	}
	return e + ftraceHeader
}

func (t *ftrace) Counters() map[string]int {
	c := map[string]int{}
	for i, dir := range t.instances {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("per_cpu/cpu%d/stats", t.cpus[i])))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			k, v, ok := strings.Cut(strings.TrimSpace(line), ": ")
			if n, err := strconv.Atoi(v); ok && err == nil && strings.Contains(k, "dropped") {
				c[k] += n
			}
		}
	}
	return c
}

func (t *ftrace) Close() error {
	var errs []error
	for _, fd := range t.fds {
		errs = append(errs, syscall.Close(fd))
	}
	for _, dir := range t.instances {
		errs = append(errs, os.Remove(dir))
	}
	if t.unmount {
		errs = append(errs, syscall.Unmount(t.dir, 0), os.Remove(t.dir))
	}
	t.fds, t.instances, t.unmount = nil, nil, false
	return errors.Join(errs...)
}
