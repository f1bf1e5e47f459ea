package testprog

// cases_test.go lists the behaviours: each program with the arguments, and what must come of it.

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// behaviour is one way to run one program of src.
type behaviour struct {
	name    string
	program string
	build   []string
	args    []string
	plugin  bool // the last argument is the path of the plugin
	env     []string
	stdin   []byte
	code    int
	signal  syscall.Signal
	// refusable: hbtrace may say that it cannot record this one (125 and one line) instead of running it.
	refusable bool
	setuid    bool
	// anyStderr: stderr is not compared: sanitizers print addresses.
	anyStderr bool
	// what its recording must hold, at least
	procs     int
	threads   int
	intervals []string // hooks
	// defect: why recording it is known to go wrong; it is run bare only.
	defect string
}

func behaviours() []behaviour {
	big := bytes.Repeat([]byte("0123456789abcdef\x00\n\xff"), 30000)
	list := []behaviour{
		{name: "hello", program: "hello", args: []string{"a b", "", "--", "-q", "é"}},
		{name: "die-abort", program: "die", args: []string{"abort"}, code: -1, signal: syscall.SIGABRT},
		{name: "die-segv", program: "die", args: []string{"segv"}, code: -1, signal: syscall.SIGSEGV},
		{name: "die-bus", program: "die", args: []string{"bus"}, code: -1, signal: syscall.SIGBUS},
		{name: "die-fpe", program: "die", args: []string{"fpe"}, code: -1, signal: syscall.SIGFPE},
		{name: "die-ill", program: "die", args: []string{"ill"}, code: -1, signal: syscall.SIGILL},
		{name: "die-kill", program: "die", args: []string{"kill"}, code: -1, signal: syscall.SIGKILL},
		{name: "die-term", program: "die", args: []string{"term"}, code: -1, signal: syscall.SIGTERM},
		{name: "die-usr1", program: "die", args: []string{"usr1"}, code: -1, signal: syscall.SIGUSR1},
		{name: "die-thread-segv", program: "die", args: []string{"thread-segv"}, code: -1, signal: syscall.SIGSEGV},
		{name: "die-handled-segv", program: "die", args: []string{"handled-segv"}, code: -1, signal: syscall.SIGSEGV},
		{name: "fork", program: "fork", procs: 42, threads: 80, intervals: []string{"poll", "usleep", "waitpid"}},
		{name: "vfork", program: "vfork", procs: 21, intervals: []string{"waitpid"}},
		{name: "spawn", program: "spawn", procs: 12},
		{name: "daemon", program: "daemon", procs: 3, intervals: []string{"usleep"}},
		{name: "execchain", program: "execchain", args: []string{"9"}, code: 17, procs: 10, threads: 10},
		{name: "env-set", program: "env", args: []string{"set"}, env: []string{"PATH=/usr/bin:/bin", "FOO=bar"}, procs: 2},
		{name: "env-clear", program: "env", args: []string{"clear"}},
		{name: "env-clearenv", program: "env", args: []string{"clearenv"}},
		{name: "env-show", program: "env", args: []string{"show"}, env: []string{"ODD=\xff\xfe", "EMPTY=", "TWO=a=b"}},
		{name: "threads", program: "threads", threads: 2001},
		{name: "cancel", program: "cancel", threads: 22, intervals: []string{"poll", "usleep"}},
		{name: "threadexit", program: "threadexit", threads: 82},
		{name: "jump", program: "jump", intervals: []string{"poll", "usleep"}},
		{name: "sigurg", program: "sigurg"},
		{name: "maskall", program: "maskall", threads: 3, intervals: []string{"poll"}},
		{name: "altstack", program: "altstack"},
		{name: "smallstack", program: "smallstack", threads: 19, intervals: []string{"poll"}},
		{name: "dlloop", program: "dlloop", plugin: true},
		{name: "closefds", program: "closefds", threads: 7, intervals: []string{"poll"}},
		{name: "mutexkinds", program: "mutexkinds", procs: 7, intervals: []string{"pthread_mutex_lock"}},
		{name: "trylock", program: "trylock", intervals: []string{"pthread_mutex_timedlock", "pthread_rwlock_timedrdlock", "pthread_mutex_clocklock"}},
		{name: "rwlock", program: "rwlock", intervals: []string{"pthread_rwlock_wrlock"}},
		{name: "condvar", program: "condvar", intervals: []string{"pthread_cond_wait", "pthread_cond_timedwait"}},
		{name: "sem", program: "sem", intervals: []string{"sem_wait", "sem_timedwait"}},
		{name: "barrier", program: "barrier", intervals: []string{"pthread_barrier_wait", "pthread_timedjoin_np"}},
		{name: "eintr", program: "eintr", intervals: []string{"poll", "ppoll", "select", "pselect", "epoll_wait", "nanosleep", "clock_nanosleep", "recv", "futex_wait", "semtimedop", "sigtimedwait"}},
		{name: "errno", program: "errno"},
		{name: "malloc", program: "malloc"},
		{name: "freenull", program: "freenull"},
		{name: "heap", program: "heap", threads: 2},
		{name: "ctor", program: "ctor"},
		{name: "coroutines", program: "coroutines"},
		{name: "echo", program: "echo", stdin: big},
		{name: "echo-empty", program: "echo"},
		{name: "output", program: "output"},
		{name: "exceptions", program: "exceptions"},
		{name: "callheavy", program: "callheavy", threads: 3},
		{name: "cxx", program: "cxx", args: []string{"40"}, threads: 5},
		{name: "atomicwait", program: "atomicwait", intervals: []string{"futex_wait"}},
		{name: "rust", program: "rust", args: []string{"40"}, threads: 7, intervals: []string{"futex_wait"}},

		{name: "overflow", program: "overflow", code: 4, threads: 11, intervals: []string{"usleep"}},
		{name: "identity", program: "identity", code: 5, procs: 6, threads: 9, intervals: []string{"usleep", "waitpid"}},
		{name: "storm-threads", program: "storm", args: []string{"threads", "6400"}, code: 6, threads: 6401},
		{name: "storm-detached", program: "storm", args: []string{"detached", "6000"}, code: 6, threads: 6001},
		{name: "storm-fork", program: "storm", args: []string{"fork", "600"}, code: 6, procs: 601},
		{name: "storm-exec", program: "storm", args: []string{"exec", "150"}, code: 6, procs: 151},
		{name: "seccomp-errno", program: "seccomp", args: []string{"errno"}, code: 7},
		{name: "seccomp-strict", program: "seccomp", args: []string{"strict"}, code: 7},
		{name: "seccomp-kill", program: "seccomp", args: []string{"kill"}, code: 7},

		// without frame pointers, and optimised: what most programs are
		{name: "cancel-O2", program: "cancel", build: []string{"-O2", "-fomit-frame-pointer"}},
		{name: "exceptions-O2", program: "exceptions", build: []string{"-O2", "-fomit-frame-pointer"}},
		{name: "jump-O2", program: "jump", build: []string{"-O2", "-fomit-frame-pointer"}},
		{name: "eintr-O2", program: "eintr", build: []string{"-O2", "-fomit-frame-pointer", "-D_FORTIFY_SOURCE=2"}},
		{name: "coroutines-O2", program: "coroutines", build: []string{"-O2", "-fomit-frame-pointer"}},
		{name: "overflow-O2", program: "overflow", build: []string{"-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"}, code: 4, threads: 11},
		{name: "altstack-O2", program: "altstack", build: []string{"-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"}},
		{name: "malloc-nopie", program: "malloc", build: []string{"-no-pie", "-fno-builtin"}},
		{name: "threads-bindnow", program: "threads", build: []string{"-Wl,-z,now", "-Wl,-z,relro"}},

		// another libc, and none to interpose on
		{name: "musl-hello", program: "hello", build: []string{"cc=musl-gcc"}},
		{name: "musl-threads", program: "threads", build: []string{"cc=musl-gcc", "-Wno-implicit-function-declaration"}},
		{name: "musl-errno", program: "errno", build: []string{"cc=musl-gcc"}},
		{name: "musl-spawn", program: "spawn", build: []string{"cc=musl-gcc"}},
		{name: "musl-threadexit", program: "threadexit", build: []string{"cc=musl-gcc"}},
		{name: "musl-echo", program: "echo", build: []string{"cc=musl-gcc"}, stdin: big},
		{name: "static-hello", program: "hello", build: []string{"-static"}, refusable: true},
		{name: "static-fork", program: "fork", build: []string{"-static"}, refusable: true},
		{name: "static-pie", program: "hello", build: []string{"-static-pie"}, refusable: true},
		{name: "setuid", program: "hello", setuid: true, refusable: true},

		{name: "asan", program: "threads", build: []string{"-fsanitize=address"}, anyStderr: true},
		{name: "tsan", program: "trylock", build: []string{"-fsanitize=thread"}, anyStderr: true},
		{name: "ubsan", program: "malloc", build: []string{"-fsanitize=undefined", "-fno-sanitize=alignment,nonnull-attribute"}},
	}
	for _, way := range []string{"return", "exit", "_exit", "quick", "thread"} {
		for _, code := range []string{"0", "7", "125", "126", "127", "255"} {
			n := 0
			for _, d := range code {
				n = n*10 + int(d-'0')
			}
			list = append(list, behaviour{name: "exit-" + way + "-" + code, program: "exitcode", args: []string{code, way}, code: n})
		}
	}
	for _, lib := range []struct{ name, file string }{{"jemalloc", "libjemalloc.so.2"}, {"tcmalloc", "libtcmalloc_minimal.so.4"}} {
		for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"} {
			path := filepath.Join(dir, lib.file)
			if _, err := os.Stat(path); err != nil {
				continue
			}
			for _, p := range []string{"threads", "fork", "errno", "exceptions"} {
				list = append(list, behaviour{name: lib.name + "-" + p, program: p, env: []string{"LD_PRELOAD=" + path, "PATH=/usr/bin:/bin"}})
			}
		}
	}
	return list
}

// command builds the behaviour's program and the command to run it bare.
func (b behaviour) command(t *testing.T) Command {
	t.Helper()
	exe := Build(t, b.program, b.build...)
	if b.setuid {
		if os.Getuid() != 0 {
			t.Skip("needs root, to give a file to another user with the set-user-id bit")
		}
		data, err := os.ReadFile(exe)
		if err != nil {
			t.Fatal(err)
		}
		exe = filepath.Join(t.TempDir(), "setuid")
		if err := os.WriteFile(exe, data, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(exe, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(exe, 0o4755); err != nil {
			t.Fatal(err)
		}
		for d := filepath.Dir(exe); len(d) > len(os.TempDir()); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	c := Command{Args: append([]string{exe}, b.args...), Env: b.env, Stdin: b.stdin, Mark: NewMark()}
	if b.plugin {
		c.Args = append(c.Args, Build(t, "plugin", "-shared", "-fPIC"))
	}
	return c
}
