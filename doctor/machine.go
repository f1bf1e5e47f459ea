// What the machine allows: the kernel's doors, tried rather than guessed where trying leaves no trace.

package doctor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/agent"
	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/kernel"
)

// Machine looks at what hbtrace needs of this machine, in the order of need.
func Machine() []Finding {
	var f findings
	lookKernel(&f)
	lookPreload(&f)
	lookMemfd(&f)
	lookAbstractSocket(&f)
	lookExecutableDir(&f)
	lookProc(&f)
	lookRealtime(&f)
	lookLimits(&f)
	lookPtrace(&f)
	lookKernelTracing(&f)
	lookCapabilities(&f)
	return f
}

func lookKernel(f *findings) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.add(Warn, "kernel", "", "uname: %v", err)
		return
	}
	release, machine := unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])
	what := fmt.Sprintf("%s, %s, %d CPUs", release, machine, runtime.NumCPU())
	if runtime.GOARCH != "amd64" {
		f.add(Fail, "kernel", "this version carries an agent for x86_64 only", "%s", what)
		return
	}
	if clock := line("/sys/devices/system/clocksource/clocksource0/current_clocksource"); clock != "" {
		what += ", clock " + clock
	}
	f.add(OK, "kernel", "", "%s", what)
}

func lookPreload(f *findings) {
	if b, err := os.ReadFile("/etc/ld.so.preload"); err == nil && len(bytes.TrimSpace(b)) > 0 {
		f.add(Note, "preload", "a library there that wraps malloc may hide allocations from hbtrace",
			"/etc/ld.so.preload names %s", strings.Join(strings.Fields(string(b)), ", "))
		return
	}
	if p := os.Getenv("LD_PRELOAD"); p != "" {
		f.add(OK, "preload", "", "LD_PRELOAD is set and is kept: the agent goes before %s", p)
		return
	}
	f.add(OK, "preload", "", "LD_PRELOAD is free")
}

func lookMemfd(f *findings) {
	fd, err := unix.MemfdCreate("hbtrace-doctor", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		f.add(Fail, "shared memory", "needs Linux 3.17 and a seccomp filter that lets memfd_create through", "memfd_create: %v", err)
		return
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 1<<20); err != nil {
		f.add(Fail, "shared memory", "", "memfd of 1 MiB: %v", err)
		return
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.add(Fail, "shared memory", "", "sealing a memfd: %v", err)
		return
	}
	f.add(OK, "shared memory", "", "memfd with seals")
}

func lookAbstractSocket(f *findings) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@hbtrace-doctor-%d", os.Getpid())})
	}
	if err != nil {
		f.add(Fail, "hand-over", "the agent receives its memory through an abstract unix socket: allow AF_UNIX", "abstract socket: %v", err)
		return
	}
	f.add(OK, "hand-over", "", "abstract unix sockets")
}

// lookExecutableDir says which of the usual places may hold the agent: the loader maps it PROT_EXEC, which a
// noexec mount refuses.
func lookExecutableDir(f *findings) {
	var good, bad []string
	for _, dir := range agentDirs() {
		if err := mapsExecutable(dir); err != nil {
			bad = append(bad, fmt.Sprintf("%s (%v)", dir, err))
		} else {
			good = append(good, dir)
		}
	}
	switch {
	case len(good) == 0:
		f.add(Fail, "agent file", "make one of them writable and mount it without noexec", "no directory for it: %s", strings.Join(bad, ", "))
	case len(bad) > 0:
		f.add(OK, "agent file", "", "%s; not %s", strings.Join(good, ", "), strings.Join(bad, ", "))
	default:
		f.add(OK, "agent file", "", "%s", strings.Join(good, ", "))
	}
}

// agentDirs are the places where package agent puts the agent, in its order.
func agentDirs() []string {
	var dirs []string
	for _, d := range agent.Bases() {
		if _, err := os.Stat(d); err != nil {
			d = filepath.Dir(d) // it is made when it is needed
		}
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			dirs = append(dirs, d)
		}
	}
	return dirs
}

func mapsExecutable(dir string) error {
	t, err := os.CreateTemp(dir, ".hbtrace-doctor-*")
	if err != nil {
		return reason(err)
	}
	defer t.Close()
	defer os.Remove(t.Name())
	if _, err := t.Write(make([]byte, os.Getpagesize())); err != nil {
		return reason(err)
	}
	m, err := unix.Mmap(int(t.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err == unix.EPERM {
		return fmt.Errorf("noexec")
	}
	if err != nil {
		return err
	}
	return unix.Munmap(m)
}

func lookProc(f *findings) {
	if _, err := os.ReadFile("/proc/self/schedstat"); err != nil {
		f.add(Warn, "CPU progress", "mount /proc, and use a kernel with CONFIG_SCHED_INFO", "no periodic CPU samples: %v", err)
		return
	}
	if st := status("self"); st["Seccomp"] == "2" {
		f.add(Note, "CPU progress", "", "/proc/PID/task/TID/schedstat; a seccomp filter is in force, calls may be refused")
		return
	}
	f.add(OK, "CPU progress", "", "/proc/PID/task/TID/schedstat")
}

// lookRealtime tries SCHED_FIFO on a thread that is thrown away afterwards: a goroutine that ends locked to
// its thread takes the thread with it.
func lookRealtime(f *findings) {
	got := make(chan error)
	go func() {
		runtime.LockOSThread()
		got <- unix.SchedSetAttr(0, &unix.SchedAttr{
			Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
		}, 0)
	}()
	if err := <-got; err != nil {
		f.add(Note, "sampler clock", "`ulimit -r 1` (limits.conf: rtprio 1) or CAP_SYS_NICE gives the sampler priority",
			"no SCHED_FIFO (%v): under load some ticks come late, and are counted", err)
		return
	}
	f.add(OK, "sampler clock", "", "SCHED_FIFO allowed")
}

func lookLimits(f *findings) {
	var small []string
	for _, l := range []struct {
		what string
		name string
		min  uint64
		why  string
	}{
		{"-n", "open files", 1024, "one for each thread that is sampled"},
		{"-f", "file size", 1 << 30, "the recording is a file"},
		{"-v", "address space", 4 << 30, "the segment and the block buffer are mapped"},
	} {
		var r unix.Rlimit
		if unix.Getrlimit(limitOf[l.what], &r) == nil && r.Cur < l.min {
			small = append(small, fmt.Sprintf("%s (ulimit %s) is %d: %s", l.name, l.what, r.Cur, l.why))
		}
	}
	if len(small) > 0 {
		f.add(Warn, "limits", "raise it with ulimit", "%s", strings.Join(small, "; "))
		return
	}
	f.add(OK, "limits", "", "open files, file size and address space suffice")
}

var limitOf = map[string]int{"-n": unix.RLIMIT_NOFILE, "-f": unix.RLIMIT_FSIZE, "-v": unix.RLIMIT_AS}

func lookPtrace(f *findings) {
	switch scope := line("/proc/sys/kernel/yama/ptrace_scope"); scope {
	case "":
		f.add(OK, "ptrace", "", "not restricted (no yama); `run` does not use it")
	case "0":
		f.add(OK, "ptrace", "", "not restricted (ptrace_scope 0); `run` does not use it")
	default:
		f.add(OK, "ptrace", "", "restricted (ptrace_scope %s); `run` does not use it", scope)
	}
}

// lookKernelTracing reports what kernel-side recording would find. None of it is needed by `run`.
func lookKernelTracing(f *findings) {
	var have []string
	add := func(name, path string) {
		if v := line(path); v != "" {
			have = append(have, name+" "+v)
		}
	}
	add("perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid")
	add("kptr_restrict", "/proc/sys/kernel/kptr_restrict")
	add("unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled")
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err == nil {
		have = append(have, "BTF yes")
	} else {
		have = append(have, "BTF no")
	}
	settings := strings.Join(have, ", ")
	if err := kernel.Probe(); err != nil {
		f.add(Note, "kernel tracing", "not needed: with it, run also records the run queue, wake-ups by timers and devices, page faults, and tracks per CPU",
			"not possible: %v (%s)", err, settings)
		return
	}
	f.add(OK, "kernel tracing", "", "scheduling events: possible (%s)", settings)
}

// capabilities that matter to a profiler, by bit.
var capabilities = []struct {
	bit  uint
	name string
}{
	{unix.CAP_SYS_PTRACE, "SYS_PTRACE"}, {unix.CAP_SYS_ADMIN, "SYS_ADMIN"}, {unix.CAP_SYS_NICE, "SYS_NICE"},
	{unix.CAP_PERFMON, "PERFMON"}, {unix.CAP_BPF, "BPF"},
}

func lookCapabilities(f *findings) {
	eff, err := strconv.ParseUint(status("self")["CapEff"], 16, 64)
	if err != nil {
		f.add(Note, "privileges", "", "cannot be read from /proc/self/status")
		return
	}
	var have []string
	for _, c := range capabilities {
		if eff&(1<<c.bit) != 0 {
			have = append(have, "CAP_"+c.name)
		}
	}
	if len(have) == 0 {
		have = []string{"none"}
	}
	f.add(OK, "privileges", "", "%s (uid %d); none is needed", strings.Join(have, " "), os.Geteuid())
}

// line is the trimmed content of a one-line file, "" when it cannot be read.
func line(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// status is /proc/PID/status as a map; empty when it cannot be read.
func status(pid string) map[string]string {
	m := map[string]string{}
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return m
	}
	for _, l := range strings.Split(string(b), "\n") {
		if k, v, ok := strings.Cut(l, ":"); ok {
			m[k] = strings.TrimSpace(v)
		}
	}
	return m
}

// reason is an error without the path that the caller already shows.
func reason(err error) error {
	if pe, ok := err.(*os.PathError); ok {
		return pe.Err
	}
	return err
}
