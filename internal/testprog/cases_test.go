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
	// preload is built as a library and preloaded, before hbtrace adds the agent.
	preload string
	// child is built with -m32 and given as the first argument: a program of another word size.
	child  string
	env    []string
	stdin  []byte
	code   int
	signal syscall.Signal
	// refusable: hbtrace may say that it cannot record this one (125 and one line) instead of running it.
	refusable bool
	setuid    bool
	oldGlibc  bool // compiled and run with glibc 2.31
	// hard: sampled 10,000 times a second, so that signals fall everywhere
	hard bool
	// flags go to hbtrace run
	flags []string
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
	// A real-time sampling signal, whose default action is to kill; SIGRTMIN is 34 in every C library here.
	rt := []string{"--signal", "rtmin+3"}
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
		{name: "execcost", program: "execcost", procs: 81, threads: 81},
		{name: "execchain", program: "execchain", args: []string{"9"}, code: 17, procs: 10, threads: 10},
		{name: "env-set", program: "env", args: []string{"set"}, env: []string{"PATH=/usr/bin:/bin", "FOO=bar"}, procs: 2},
		{name: "env-clear", program: "env", args: []string{"clear"}, procs: 2},
		{name: "env-clearenv", program: "env", args: []string{"clearenv"}, procs: 2},
		{name: "env-show", program: "env", args: []string{"show"}, env: []string{"ODD=\xff\xfe", "EMPTY=", "TWO=a=b"}},
		{name: "threads", program: "threads", threads: 2001},
		{name: "cancel", program: "cancel", threads: 22, intervals: []string{"poll", "usleep"}},
		{name: "threadexit", program: "threadexit", threads: 82},
		{name: "jump", program: "jump", intervals: []string{"poll", "usleep"}},
		{name: "jumpwait", program: "jumpwait", intervals: []string{"sem_wait", "pthread_mutex_lock", "futex_wait"}},
		{name: "badtimes", program: "badtimes"},
		{name: "sigurg", program: "sigurg"},
		{name: "sigurg-kept", program: "sigurg", args: []string{"kept"}},
		{name: "ignored", program: "ignored", hard: true, procs: 43},
		{name: "stolen", program: "stolen", hard: true, procs: 16},
		{name: "ownhandler", program: "ownhandler", build: []string{"-Wno-deprecated-declarations"}, hard: true},
		{name: "ownhandler-kept", program: "ownhandler", args: []string{"kept"}, build: []string{"-Wno-deprecated-declarations"}, hard: true},
		{name: "tinyalt", program: "tinyalt", hard: true, threads: 3},
		{name: "altdepth", program: "tinyalt", args: []string{"depth"}, hard: true},
		{name: "maskall", program: "maskall", threads: 3, intervals: []string{"poll"}},
		{name: "lent", program: "lent", procs: 4, threads: 9},
		{name: "lent-thread", program: "lent", args: []string{"thread"}, procs: 4},
		{name: "lent-process", program: "lent", args: []string{"process"}, procs: 4},
		{name: "lent-before", program: "lent", args: []string{"before"}, procs: 4},
		{name: "lent-queue", program: "lent", args: []string{"queue"}, flags: []string{"-F", "999"}, procs: 4},
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
		{name: "reallocs", program: "reallocs", flags: []string{"--alloc-period", "1"}, threads: 7},
		{name: "ctor", program: "ctor"},
		{name: "coroutines", program: "coroutines"},
		{name: "oddstacks", program: "oddstacks", build: []string{"-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"}, hard: true, threads: 3},
		{name: "echo", program: "echo", stdin: big},
		{name: "echo-empty", program: "echo"},
		{name: "output", program: "output"},
		{name: "exceptions", program: "exceptions"},
		{name: "callheavy", program: "callheavy", threads: 3},
		{name: "shortruns", program: "shortruns"},
		{name: "cxx", program: "cxx", args: []string{"40"}, threads: 5},
		{name: "atomicwait", program: "atomicwait", intervals: []string{"futex_wait"}},
		{name: "rust", program: "rust", args: []string{"40"}, threads: 7, intervals: []string{"futex_wait"}},

		{name: "overflow", program: "overflow", code: 4, threads: 11, intervals: []string{"usleep"}},
		{name: "identity", program: "identity", code: 5, procs: 6, threads: 9, intervals: []string{"usleep", "waitpid"}},
		{name: "storm-threads", program: "storm", args: []string{"threads", "6400"}, code: 6, threads: 6401},
		{name: "storm-detached", program: "storm", args: []string{"detached", "6000"}, code: 6, threads: 6001},
		{name: "storm-fork", program: "storm", args: []string{"fork", "600"}, code: 6, procs: 601},
		{name: "storm-exec", program: "storm", args: []string{"exec", "150"}, code: 6, procs: 151},
		{name: "rawclone", program: "rawclone"},
		{name: "places", program: "places", procs: 8, threads: 20, intervals: []string{"poll"}},
		{name: "exits-_exit-thread", program: "exits", args: []string{"_exit-thread"}, code: 21, threads: 10},
		{name: "exits-quick", program: "exits", args: []string{"quick"}, code: 23, threads: 9},
		{name: "exits-pthread-main", program: "exits", args: []string{"pthread-main"}, code: 22, threads: 2},
		{name: "exits-exit-busy", program: "exits", args: []string{"exit-busy"}, code: 25, threads: 9},
		{name: "exits-abort-thread", program: "exits", args: []string{"abort-thread"}, code: -1, signal: syscall.SIGABRT, threads: 10},
		{name: "exits-atexit", program: "exits", args: []string{"atexit"}, code: 24, threads: 2},
		{name: "dlstorm", program: "dlstorm", plugin: true, threads: 7},
		{name: "churn", program: "churn", args: []string{"3200"}, threads: 3201, intervals: []string{"poll"}},
		{name: "sigstorm", program: "sigstorm", threads: 5, intervals: []string{"poll"}},
		{name: "fdreuse", program: "fdreuse", procs: 2, threads: 3, intervals: []string{"read", "readv"}},
		{name: "fcontext", program: "fcontext", threads: 3, intervals: []string{"poll"}},
		{name: "fcontext-O2", program: "fcontext", build: []string{"-O2", "-fomit-frame-pointer"}, threads: 3},
		{name: "ownmalloc", program: "ownmalloc", threads: 4},
		{name: "rlimits", program: "rlimits", code: 9, procs: 9, threads: 20, intervals: []string{"poll"}},
		{name: "execthread", program: "execthread", args: []string{"6"}, code: 11, procs: 7, threads: 20},
		{name: "crash-handlers", program: "threads", preload: "segvlib", threads: 2001},
		{name: "crash-handlers-segv", program: "die", args: []string{"segv"}, preload: "segvlib", code: -1, signal: syscall.SIGSEGV},
		{name: "crash-handlers-thread", program: "die", args: []string{"thread-segv"}, preload: "segvlib", code: -1, signal: syscall.SIGSEGV},
		{name: "children-32-bit", program: "starter", child: "hello", args: []string{"x"}},

		{name: "seccomp-errno", program: "seccomp", args: []string{"errno"}, code: 7},
		{name: "seccomp-strict", program: "seccomp", args: []string{"strict"}, code: 7},
		{name: "seccomp-kill", program: "seccomp", args: []string{"kill"}, code: 7},
		{name: "tsync", program: "tsync", hard: true, procs: 13},
		{name: "notsc", program: "notsc", code: 5, hard: true, procs: 3},
		{name: "musl-notsc", program: "notsc", args: []string{"exec"}, build: []string{"cc=musl-gcc"}, code: 5, procs: 4},

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

		// what the standard says of threads and signals, while signals of ours fall everywhere
		{name: "conformsignals-hard", program: "conformsignals", hard: true},
		{name: "conformthreads-hard", program: "conformthreads", hard: true},
		{name: "cancel-hard", program: "cancel", hard: true},
		{name: "condvar-hard", program: "condvar", hard: true},
		{name: "mutexkinds-hard", program: "mutexkinds", hard: true},
		{name: "jump-hard", program: "jump", hard: true},
		{name: "exceptions-hard", program: "exceptions", hard: true},
		{name: "altstack-hard", program: "altstack", hard: true},
		{name: "fcontext-hard", program: "fcontext", hard: true},

		{name: "everycall", program: "everycall", build: []string{"-lrt"}, procs: 16, threads: 46},
		{name: "everycall-hard", program: "everycall", build: []string{"-lrt"}, hard: true, procs: 16, threads: 46},
		{name: "everycall-rt", program: "everycall", build: []string{"-lrt", "-O2", "-fomit-frame-pointer"}, hard: true, flags: rt, procs: 16, threads: 46},

		// Without the gate before exec (hooks/exec.h) the first three are killed by the sampling signal.
		{name: "execstorm-rt", program: "execstorm", args: []string{"120", "1000000"}, hard: true, flags: rt, code: 13, procs: 121, threads: 300},
		{name: "execthread-rt", program: "execthread", args: []string{"6"}, hard: true, flags: rt, code: 11, procs: 7, threads: 20},
		{name: "execchain-rt", program: "execchain", args: []string{"9"}, hard: true, flags: rt, code: 17, procs: 10},
		{name: "execstorm", program: "execstorm", args: []string{"40", "1000000"}, hard: true, code: 13, procs: 41},
		{name: "storm-exec-rt", program: "storm", args: []string{"exec", "100"}, hard: true, flags: rt, code: 6, procs: 101},
		{name: "storm-fork-rt", program: "storm", args: []string{"fork", "200"}, hard: true, flags: rt, code: 6, procs: 201},
		{name: "spawn-rt", program: "spawn", hard: true, flags: rt, procs: 12},
		{name: "eintr-rt", program: "eintr", hard: true, flags: rt},
		{name: "maskall-rt", program: "maskall", hard: true, flags: rt, threads: 3},
		{name: "lent-rt", program: "lent", args: []string{"process"}, flags: rt, procs: 4},
		{name: "sigstorm-rt", program: "sigstorm", hard: true, flags: rt, threads: 5},
		{name: "conformsignals-rt", program: "conformsignals", hard: true, flags: rt},
		{name: "sigurg-rt", program: "sigurg", hard: true, flags: rt},
		{name: "own-signal-rt", program: "sigurg", build: []string{"-DSIG=(SIGRTMIN+3)"}, hard: true, flags: rt},

		// another libc, and none to interpose on
		{name: "musl-hello", program: "hello", build: []string{"cc=musl-gcc"}},
		{name: "musl-threads", program: "threads", build: []string{"cc=musl-gcc", "-Wno-implicit-function-declaration"}},
		{name: "musl-errno", program: "errno", build: []string{"cc=musl-gcc"}},
		{name: "musl-reallocs", program: "reallocs", build: []string{"cc=musl-gcc"}, flags: []string{"--alloc-period", "1"}, threads: 7},
		{name: "musl-spawn", program: "spawn", build: []string{"cc=musl-gcc"}},
		{name: "musl-lent", program: "lent", args: []string{"process"}, build: []string{"cc=musl-gcc"}, procs: 4},
		{name: "musl-threadexit", program: "threadexit", build: []string{"cc=musl-gcc"}},
		{name: "musl-echo", program: "echo", build: []string{"cc=musl-gcc"}, stdin: big},
		{name: "static-hello", program: "hello", build: []string{"-static"}, refusable: true},
		{name: "static-fork", program: "fork", build: []string{"-static"}, refusable: true},
		{name: "static-pie", program: "hello", build: []string{"-static-pie"}, refusable: true},
		{name: "setuid", program: "hello", setuid: true, refusable: true},

		// where dlsym(RTLD_NEXT) finds the oldest version of a symbol, and threads are a library of their own
		{name: "glibc2.31-hello", program: "hello", oldGlibc: true, args: []string{"x"}},
		{name: "glibc2.31-threads", program: "threads", oldGlibc: true, threads: 2001},
		{name: "glibc2.31-condvar", program: "condvar", oldGlibc: true, intervals: []string{"pthread_cond_wait", "pthread_cond_timedwait"}},
		{name: "glibc2.31-eintr", program: "eintr", oldGlibc: true, intervals: []string{"poll", "epoll_wait", "futex_wait"}},
		{name: "glibc2.31-cancel", program: "cancel", oldGlibc: true, threads: 22},
		{name: "glibc2.31-mutexkinds", program: "mutexkinds", oldGlibc: true, procs: 7},
		{name: "glibc2.31-sem", program: "sem", oldGlibc: true, intervals: []string{"sem_wait"}},
		{name: "glibc2.31-spawn", program: "spawn", oldGlibc: true, procs: 12},
		{name: "glibc2.31-fork", program: "storm", oldGlibc: true, args: []string{"fork", "60"}, code: 6, procs: 61},
		{name: "glibc2.31-dlloop", program: "dlloop", oldGlibc: true, plugin: true},
		{name: "glibc2.31-jump", program: "jump", oldGlibc: true, intervals: []string{"poll"}},

		{name: "asan", program: "threads", build: []string{"-fsanitize=address"}, anyStderr: true},
		{name: "tsan", program: "trylock", build: []string{"-fsanitize=thread"}, anyStderr: true},
		{name: "asan-cxx", program: "cxx", args: []string{"20"}, build: []string{"-fsanitize=address"}, threads: 5},
		{name: "asan-after-free", program: "asanbug", args: []string{"after-free"}, build: []string{"-fsanitize=address"}, anyStderr: true, code: 1},
		{name: "asan-overflow", program: "asanbug", args: []string{"overflow"}, build: []string{"-fsanitize=address"}, anyStderr: true, code: 1},
		{name: "asan-leak", program: "asanbug", args: []string{"leak"}, build: []string{"-fsanitize=address"}, anyStderr: true, code: 1},
		{name: "asan-none", program: "asanbug", args: []string{"none"}, build: []string{"-fsanitize=address"}},
		{name: "tsan-race", program: "asanbug", args: []string{"race"}, build: []string{"-fsanitize=thread"}, anyStderr: true, code: 66},
		{name: "tsan-none", program: "asanbug", args: []string{"none"}, build: []string{"-fsanitize=thread"}},
		{name: "ubsan-undefined", program: "asanbug", args: []string{"undefined"}, build: []string{"-fsanitize=undefined", "-fno-sanitize-recover"}, anyStderr: true, code: 1},
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
			for _, p := range []string{"threads", "errno"} {
				list = append(list, behaviour{name: lib.name + "-linked-" + p, program: p, build: []string{"-Wl,--no-as-needed", "-l:" + lib.file}})
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
	build := b.build
	if b.oldGlibc {
		build = append(OldGlibc(t), build...)
	}
	exe := Build(t, b.program, build...)
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
	args := b.args
	if b.child != "" {
		args = append([]string{Build32(t, b.child)}, args...)
	}
	c := Command{Args: append([]string{exe}, args...), Env: b.env, Stdin: b.stdin, Mark: NewMark()}
	if b.preload != "" {
		c.Env = append(os.Environ(), "LD_PRELOAD="+Build(t, b.preload, "-shared", "-fPIC"))
	}
	if b.plugin {
		c.Args = append(c.Args, Build(t, "plugin", "-shared", "-fPIC"))
	}
	return c
}
