package main

// tools.go: what a user would run instead, and how each is put around a program.

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tool runs programs under something, or bare.
type tool struct {
	name  string
	needs string // a program in PATH, or a file; "" nothing
	root  bool
	build []string // how the workload has to be compiled for it
	// wrap returns the command line and what is added to the environment; what the tool writes goes to dir.
	wrap func(dir string, command []string) (args, env []string)
	// shows says what the tool can tell of a program, and what it cannot.
	shows string
	hb    bool
}

func before(words ...string) func(string, []string) ([]string, []string) {
	return func(dir string, command []string) ([]string, []string) {
		args := make([]string, 0, len(words)+len(command))
		for _, w := range words {
			if w[0] == '@' {
				w = filepath.Join(dir, w[1:])
			}
			args = append(args, w)
		}
		return append(args, command...), nil
	}
}

const profiler = "/usr/lib/x86_64-linux-gnu/libprofiler.so.0"

func tools(hbtrace string) []tool {
	return []tool{
		{name: "bare", wrap: before(), shows: "-"},
		{name: "hbtrace", hb: true, wrap: before(hbtrace, "run", "-q", "-o", "@rec", "--"),
			shows: "on-CPU, blocked with stacks, locks with holder and releaser, allocations; not the kernel's side of a wait"},
		{name: "hbtrace 2 %", hb: true, wrap: before(hbtrace, "run", "-q", "--budget", "2%", "-o", "@rec", "--"), shows: "the same, as far as it may cost"},
		{name: "hbtrace 1 %", hb: true, wrap: before(hbtrace, "run", "-q", "--budget", "1%", "-o", "@rec", "--"), shows: "the same, as far as it may cost"},
		{name: "hbtrace -F 10000", hb: true, wrap: before(hbtrace, "run", "-q", "-F", "10000", "-o", "@rec", "--"), shows: "the same, denser"},
		{name: "hbtrace dormant", wrap: func(_ string, command []string) ([]string, []string) {
			path, err := exec.Command(hbtrace, "preload", "--path").Output()
			if err != nil {
				return []string{"false"}, nil // the run fails, and is reported
			}
			return command, []string{"LD_PRELOAD=" + strings.TrimSpace(string(path))}
		}, shows: "nothing until hbtrace attach comes"},
		{name: "perf record -g", needs: "perf", wrap: before("perf", "record", "-q", "-F", "999", "-g", "-o", "@perf.data", "--"),
			shows: "on-CPU only; stacks end in libraries without frame pointers"},
		{name: "heaptrack", needs: "heaptrack", wrap: before("heaptrack", "-o", "@heap"), shows: "every allocation with its stack; nothing else"},
		{name: "gperftools", needs: profiler, wrap: func(dir string, command []string) ([]string, []string) {
			return command, []string{"LD_PRELOAD=" + profiler, "CPUPROFILE=" + filepath.Join(dir, "prof")}
		}, shows: "on-CPU only, at most 250 a second"},
		{name: "uftrace", needs: "uftrace", build: []string{"-pg"}, wrap: before("uftrace", "record", "-d", "@uftrace.data"),
			shows: "every call of a program that was compiled for it; not why it waited"},
		{name: "strace -f -c", needs: "strace", wrap: before("strace", "-f", "-c", "-o", "@strace"), shows: "counts and times of system calls; no stacks"},
		{name: "bpftrace off-CPU", needs: "bpftrace", root: true, wrap: func(dir string, command []string) ([]string, []string) {
			line := ""
			for i, w := range command {
				if i > 0 {
					line += " "
				}
				line += w
			}
			return []string{"bpftrace", "-q", "-o", filepath.Join(dir, "off"), "-c", line, "-e",
				"tracepoint:sched:sched_switch /pid == cpid/ { @[ustack] = count(); }"}, nil
		}, shows: "where threads went to sleep, as root, where frame pointers reach; not who woke them"},
	}
}

// missing says why a tool cannot be used here; "" when it can.
func (t *tool) missing() string {
	if t.root && os.Getuid() != 0 {
		return "needs root"
	}
	if t.needs == "" {
		return ""
	}
	if filepath.IsAbs(t.needs) {
		if _, err := os.Stat(t.needs); err != nil {
			return "no " + t.needs
		}
		return ""
	}
	if _, err := exec.LookPath(t.needs); err != nil {
		return "no " + t.needs + " in PATH"
	}
	return ""
}

// written is the size of all that lies in dir.
func written(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // what is gone has no size
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
