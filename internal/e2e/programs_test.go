package e2e

// programs_test.go: programs with an end, whose output must be what it is without hbtrace.

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/hbtrace/hbtrace/internal/testprog"
	"github.com/hbtrace/hbtrace/trace"
)

// compare runs a command bare and recorded: output and status must be the same.
func compare(t *testing.T, c testprog.Command, flags ...string) (*session, testprog.Result) {
	t.Helper()
	c.Mark = testprog.NewMark()
	bare := testprog.Run(t, c)
	s := start(t, c, flags...)
	traced := s.finish(t)
	if traced.Status() != bare.Status() {
		t.Errorf("bare: %v\ntraced: %v", bare, traced)
	}
	if string(traced.Stdout) != string(bare.Stdout) || string(traced.Stderr) != string(bare.Stderr) {
		t.Errorf("output differs\nbare: %v\ntraced: %v", bare, traced)
	}
	return s, bare
}

func TestSqlite(t *testing.T) {
	sqlite := testprog.LookPath(t, "sqlite3", "sqlite3")
	script := `create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x+1 from n where x < 120000)
  insert into t select x, 'row ' || (x * 7919 % 100003), x * 0.5 from n;
create index i on t(b);
select count(*), sum(a), max(b) from t;
select b, count(*) from t where b like '%99%' group by substr(b, 5, 2) order by 2 desc, 1 limit 5;
with recursive fib(a, b, n) as (select 0, 1, 0 union all select b, (a + b) % 1000000007, n + 1 from fib where n < 200000)
  select max(a), sum(b) from fib;
select count(*) from t x join t y on x.b = y.b;
select nonsense;
`
	s, bare := compare(t, testprog.Command{Args: []string{sqlite, ":memory:"}, Stdin: []byte(script)})
	if len(bare.Stdout) == 0 {
		t.Error("sqlite3 printed nothing")
	}
	r := s.open(t)
	r.wantShare(t, "cpu", "libsqlite3", 0.6, func(f, file string) bool {
		return strings.HasPrefix(file, "libsqlite3") || strings.HasPrefix(f, "libsqlite3") || strings.HasPrefix(f, "sqlite3")
	})
}

func TestPython(t *testing.T) {
	python := "/usr/bin/python3"
	if _, err := os.Stat(python); err != nil {
		python = testprog.LookPath(t, "python3", "python3")
	}
	script := filepath.Join(t.TempDir(), "work.py")
	write(t, script, `
import hashlib, json, queue, threading, time, zlib

def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

jobs, results = queue.Queue(), {}
lock = threading.Lock()

def worker():
    while True:
        n = jobs.get()
        if n is None:
            return
        doc = json.dumps({"n": n, "fib": fib(15 + n % 5), "pad": list(range(300))})
        digest = hashlib.sha256(zlib.compress(doc.encode() * 50)).hexdigest()
        with lock:
            time.sleep(0.0005)
            results[n] = digest + str(len(json.loads(doc)["pad"]))

threads = [threading.Thread(target=worker, name=f"w{i}") for i in range(4)]
for t in threads: t.start()
for n in range(120): jobs.put(n)
for t in threads: jobs.put(None)
for t in threads: t.join()
print(len(results), hashlib.sha256(json.dumps(sorted(results.items())).encode()).hexdigest())
raise SystemExit(3)
`)
	s, bare := compare(t, testprog.Command{Args: []string{python, "-S", "-E", script}})
	if bare.Code != 3 {
		t.Errorf("python: %v", bare)
	}
	r := s.open(t)
	r.wantShare(t, "cpu", "the script", 0.3, func(f, file string) bool { return file == "[python]" && strings.HasPrefix(f, "worker") })
	if n := len(r.Threads()); n < 5 {
		t.Errorf("%d threads, want 5", n)
	}
	r.wantIntervals(t, "sem_wait", "sem_clockwait", "sem_timedwait", "pthread_cond_timedwait", "pthread_cond_clockwait", "pthread_cond_wait")
	r.wantIntervals(t, "clock_nanosleep", "nanosleep", "select")
}

func TestBashPipelines(t *testing.T) {
	bash := testprog.LookPath(t, "bash", "bash")
	script := `set -o pipefail
seq 1 60000 | sort -rn | awk '{s += $1} END {print s}'
for i in 1 2 3 4 5; do (echo "sub $i"; exit $i) || echo "status $?"; done
x=$(printf 'a\nb\nc\n' | tr a-z A-Z | tail -n 1); echo "$x"
cat <(echo one) <(echo two) | sort
sleep 0.05 & wait $!
exec 3>&1; echo through three >&3
false | true; echo "pipe status $?"
exit 9`
	s, bare := compare(t, testprog.Command{Args: []string{bash, "-c", script}})
	if bare.Code != 9 {
		t.Errorf("bash: %v", bare)
	}
	r := s.open(t)
	exes := map[string]int{}
	for _, p := range r.Processes() {
		exes[filepath.Base(p.Exe)]++
	}
	for _, want := range []string{"bash", "seq", "sort", "tr", "tail", "cat", "sleep"} {
		if exes[want] == 0 {
			t.Errorf("no process of %s; there are %v", want, exes)
		}
	}
	// each exec is a process of its own, which knows the one it replaced
	for _, p := range r.Processes() {
		if filepath.Base(p.Exe) == "seq" && p.Parent == 0 {
			t.Errorf("seq (%d) does not know who it came from", p.ID)
		}
	}
	r.wantIntervals(t, "read", "waitpid", "wait4", "clock_nanosleep", "nanosleep")
}

func TestCxxProgram(t *testing.T) {
	exe := testprog.Build(t, "cxx")
	s, _ := compare(t, testprog.Command{Args: []string{exe, "400"}}, "-F", "499")
	r := s.open(t)
	r.wantShare(t, "cpu", "work::sort_chunk", 0.6, function("work::sort_chunk"))
	r.wantShare(t, "cpu", "work::fill_chunk", 0.01, function("work::fill_chunk"))
	if got := r.share(t, "cpu", function("work::fill_chunk")); got > 0.25 {
		t.Errorf("work::fill_chunk has %.0f %% of the CPU time, it does almost nothing", 100*got)
	}
	r.wantIntervals(t, "pthread_cond_wait", "pthread_join", "pthread_mutex_lock")
}

func TestRustProgram(t *testing.T) {
	exe := testprog.Build(t, "rust")
	s, _ := compare(t, testprog.Command{Args: []string{exe, "400"}}, "-F", "499")
	r := s.open(t)
	r.wantShare(t, "cpu", "work::mix_block", 0.6, function("work::mix_block"))
	r.wantIntervals(t, "futex_wait")
	r.wantShare(t, "delay", "Rust's Mutex", 0.5, function("::Mutex")) // it blocks by futex, and contends all the same
	if n := r.threadsNamed("worker-"); n != 4 {
		t.Errorf("%d threads are called worker-…, want 4", n)
	}
}

// TestCallsDoNotAttractSamples: a sample that is due while a thread works and taken when it next enters a call would
// charge the call with the work. The program itself measures how its CPU time is split.
func TestCallsDoNotAttractSamples(t *testing.T) {
	exe := testprog.Build(t, "callheavy")
	for _, freq := range []string{"99", "999"} {
		t.Run("F="+freq, func(t *testing.T) {
			s := start(t, testprog.Command{Args: []string{exe, "truth"}}, "-F", freq)
			res := s.finish(t)
			truth, err := strconv.ParseFloat(strings.TrimSpace(string(res.Stderr)), 64)
			if err != nil || res.Status() != 0 || truth < 50 || truth > 120 {
				t.Fatalf("callheavy: %v", res)
			}
			r := s.open(t)
			got := 100 * r.share(t, "cpu", function("work_between_calls"))
			t.Logf("work_between_calls: %.1f %% of the CPU time, by the profile %.1f %%", truth, got)
			if got < min(truth, 100)-12 {
				t.Errorf("work_between_calls has %.1f %% of the profile, and used %.1f %% of the CPU time", got, truth)
			}
		})
	}
}

// TestShortRunsKeepTheirTime: work between calls that is too short for a signal to arrive in keeps its CPU time, also where long
// runs of work begin after the same call.
func TestShortRunsKeepTheirTime(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{testprog.Build(t, "shortruns"), "truth"}}, "-F", "999")
	res := s.finish(t)
	truth, err := strconv.ParseFloat(strings.TrimSpace(string(res.Stderr)), 64)
	if err != nil || res.Status() != 0 {
		t.Fatalf("shortruns: %v", res)
	}
	r := s.open(t)
	got := 100 * r.share(t, "cpu", function("make_calls"))
	t.Logf("make_calls: %.1f %% of the CPU time, by the profile %.1f %%", truth, got)
	if got < truth-12 || got > truth+12 {
		t.Errorf("make_calls has %.1f %% of the profile, and used %.1f %% of the CPU time", got, truth)
	}
}

// TestExecIsAccountedFor: what processes use before anything of theirs can be recorded, in the kernel's exec and in the loader, is
// in the profile, as execve; what the image before the exec used is not in it twice.
func TestExecIsAccountedFor(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{testprog.Build(t, "execcost"), "truth"}})
	res := s.finish(t)
	var before, during int64
	if n, err := fmt.Sscan(string(res.Stderr), &before, &during); n != 2 || res.Status() != 0 {
		t.Fatalf("execcost: %v, %v", res, err)
	}
	r := s.open(t)
	exec, total := r.sum(t, "cpu", function("execve"))
	rest := total - exec
	t.Logf("before: %v, by the profile %v with what the parent used; during: %v, by the profile %v", time.Duration(before), time.Duration(rest),
		time.Duration(during), time.Duration(exec))
	if rest < before*3/4 || rest > before*3/2 {
		t.Errorf("all but execve has %v of the profile; the children used %v before their execs", time.Duration(rest), time.Duration(before))
	}
	// The agent itself begins on the way; and the program that the recorder runs was exec-ed, too.
	if exec < during/3 || exec > during+during/10 {
		t.Errorf("execve has %v of the profile, of %v that execs and the loader used", time.Duration(exec), time.Duration(during))
	}
}

// TestReadyToRun: threads that have to share one CPU are told apart from threads that wait for something, without privileges.
func TestReadyToRun(t *testing.T) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !cpus.IsSet(first) {
		first++
	}
	s := start(t, testprog.Command{Args: []string{"taskset", "-c", strconv.Itoa(first), testprog.Build(t, "callheavy")}})
	if res := s.finish(t); res.Status() != 0 {
		t.Fatalf("callheavy: %v", res)
	}
	r := s.openTrace(t)
	var ready, cpu time.Duration
	for _, th := range r.Threads() {
		cpu += time.Duration(max(th.CPU, 0))
	}
	if err := trace.Events(r, func(e *trace.Event) error {
		if e.Kind == trace.KindUsage {
			ready += time.Duration(e.Debt)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	whole := time.Duration(r.Meta().EndNs-r.Meta().StartNs) * time.Duration(len(r.Threads()))
	t.Logf("%v ready to run, %v of CPU time, %v of threads", ready, cpu, whole)
	// Two threads work all the time, each as often as the other: what one uses the other waits for. Their last second may be missing.
	if ready < cpu/4 || ready > whole {
		t.Errorf("%v ready to run beside %v of CPU time", ready, cpu)
	}
}

// TestHeap: bytes and objects allocated and in use come out near the truth, each with the function that allocated.
func TestHeap(t *testing.T) {
	s, _ := compare(t, testprog.Command{Args: []string{testprog.Build(t, "heap")}})
	r := s.open(t)
	const mib = 1 << 20
	for _, c := range []struct {
		value, function string
		want            int64
	}{
		{"alloc_space", "keep", 64 * mib}, {"alloc_space", "churn", 128 * mib}, {"inuse_space", "keep", 32 * mib},
		{"alloc_objects", "keep", 16384}, {"alloc_objects", "churn", 32768}, {"inuse_objects", "keep", 8192},
	} {
		got, _ := r.sum(t, c.value, function(c.function))
		t.Logf("%s of %s: %d, really %d", c.value, c.function, got, c.want)
		if got < c.want/2 || got > c.want*16/10 { // some 60 samples at least: four standard deviations
			t.Errorf("%s of %s: %d, really %d", c.value, c.function, got, c.want)
		}
	}
	if got, _ := r.sum(t, "inuse_space", function("churn")); got != 0 {
		t.Errorf("%d bytes in use are churn's, which freed all", got)
	}
}

// TestLateSamplesAreSaid: a thread that comes to block every signal is sampled at its next call, and the report says how much
// of the profile that is.
func TestLateSamplesAreSaid(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{testprog.Build(t, "maskall")}}, "-F", "499")
	if res := s.finish(t); res.Status() != 0 {
		t.Fatal(res)
	}
	s.open(t)
	out, err := exec.Command(testprog.Hbtrace(t), "report", "--cpu", s.prefix+".hbt").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), "of CPU time attributed to the next call (no sample inside this work)") {
		t.Errorf("the report does not say that samples were late:\n%s", out)
	}
	accounted, late := s.lateCPU(t)
	if late < accounted/4 || late > accounted {
		t.Errorf("%d of %d ns were sampled late, the masked thread used about half", late, accounted)
	}
}

// lateCPU is how much CPU time the report accounts for, and how much of it was counted at the next call, in ns.
func (s *session) lateCPU(t *testing.T) (accounted, late int64) {
	t.Helper()
	out, err := exec.Command(testprog.Hbtrace(t), "report", "--json", s.prefix+".hbt").Output()
	if err != nil {
		t.Fatal(err)
	}
	var rep struct {
		CPU struct {
			Accounted int64 `json:"accounted_ns"`
			Late      int64 `json:"late_ns"`
		}
	}
	if err := json.Unmarshal(out, &rep); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d ns late", rep.CPU.Late, rep.CPU.Accounted)
	return rep.CPU.Accounted, rep.CPU.Late
}

// TestBornMasked: a thread that is born with all signals blocked, as those of liblzma are, is sampled inside its work, not at the next call.
func TestBornMasked(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{testprog.Build(t, "lent", "-O2"), "1"}})
	res := s.finish(t)
	if res.Status() != 0 {
		t.Errorf("lent: %v", res)
	}
	r := s.open(t)
	r.wantShare(t, "cpu", "unseen_work", 0.9, function("unseen_work"))
	if accounted, late := s.lateCPU(t); late*10 > accounted {
		t.Errorf("%d of %d ns were counted at the next call, want next to none", late, accounted)
	}
}

// TestDemo holds the story that examples/demo is to tell against what was recorded.
func TestDemo(t *testing.T) {
	exe := testprog.BuildFile(t, "../../examples/demo/demo.c", "-O2")
	s := start(t, testprog.Command{Args: []string{exe, "3"}}, "-F", "999")
	res := s.finish(t)
	if res.Status() != 0 || !strings.HasPrefix(string(res.Stdout), "served ") || strings.Count(string(res.Stdout), "\n") != 1 {
		t.Errorf("demo: %v", res)
	}
	r := s.open(t)
	for _, name := range []string{"chef-0", "chef-1", "cache-refresher", "accountant", "waiter-0", "waiter-3"} {
		if r.threadsNamed(name) != 1 {
			t.Errorf("no thread %s", name)
		}
	}
	for _, m := range r.Modules() {
		if m.Path == exe && (m.Code.Hi <= m.Code.Lo || m.Code.Lo+m.Bias < m.Lo) {
			t.Errorf("the program's code is recorded as %+v, the program at %#x to %#x", m.Code, m.Lo, m.Hi)
		}
	}
	knead, chop := r.share(t, "cpu", function("knead_dough")), r.share(t, "cpu", function("chop_vegetables"))
	t.Logf("knead_dough %.1f %%, chop_vegetables %.1f %%", 100*knead, 100*chop)
	// Twice as much is kneaded as is chopped. How long either takes depends on what else the machine does.
	if knead+chop < 0.5 || knead <= chop {
		t.Errorf("knead_dough %.2f and chop_vegetables %.2f of the CPU time: want most of it, and more of knead_dough", knead, chop)
	}
	// Whoever waited long for cache_lock while the refresher held it was let go by the refresher. When it held it is seen by its own
	// calls: on a loaded machine a waiter may lose its CPU in the lock as well, and others then wait for that.
	names := map[trace.ThreadID]string{}
	for _, th := range r.Threads() {
		names[th.ID] = th.Name
	}
	hooks := r.Meta().Hooks
	type span struct{ from, to trace.Ns }
	var held []span
	var waits []trace.Event
	var cache uint64
	if err := trace.Events(r, func(e *trace.Event) error {
		switch {
		case names[e.Thread] == "cache-refresher" && e.Kind == trace.KindCall && slices.Contains([]string{"nanosleep", "clock_nanosleep"}, hooks[e.Hook].Name) && e.Time-e.Start < 45_000_000: // the others are wait_for_next_menu's
			held = append(held, span{e.Start, e.Time})
		case strings.HasPrefix(names[e.Thread], "waiter-") && e.Kind == trace.KindWait && hooks[e.Hook].Name == "pthread_mutex_lock" && e.Time-e.Start > 4_000_000:
			waits = append(waits, *e)
			if names[e.Owner] == "cache-refresher" {
				cache = e.Object
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	known, of, byRefresher := 0, 0, 0
	for _, e := range waits {
		if e.Releaser != 0 || e.Owner != 0 {
			known++
		}
		var together trace.Ns
		for _, h := range held {
			together += max(0, min(h.to, e.Time)-max(h.from, e.Start))
		}
		if e.Object != cache || 2*together < e.Time-e.Start {
			continue
		}
		if of++; names[e.Owner] == "cache-refresher" || names[e.Releaser] == "cache-refresher" {
			byRefresher++
		} else {
			t.Logf("%s waited %d ms, %d of them while the refresher slept in the lock: owner %q, releaser %q", names[e.Thread], (e.Time-e.Start)/1e6, together/1e6, names[e.Owner], names[e.Releaser])
		}
	}
	t.Logf("%d long waits of the waiters, %d with a known owner or releaser; the refresher held the cache in %d, and is named for %d of these", len(waits), known, of, byRefresher)
	if of < 5 || known*10 < len(waits)*9 {
		t.Errorf("%d long waits of the waiters, %d while the refresher held the cache: want many; %d with a known owner or releaser", len(waits), of, known)
	}
	if byRefresher*10 < of*9 {
		t.Errorf("only %d of %d long waits name cache-refresher as who held or let go", byRefresher, of)
	}
	if out, err := exec.Command(testprog.Hbtrace(t), "report", "--locks", s.prefix+".hbt").Output(); err != nil || !strings.Contains(string(out), "mutex cache_lock ") {
		t.Errorf("the report does not call cache_lock by its name (%v):\n%s", err, out)
	}
	if !slices.ContainsFunc(r.pprof.Sample, func(s *profile.Sample) bool { return slices.Contains(s.Label["lock"], "cache_lock") }) {
		t.Error("no sample of the profile is labelled cache_lock")
	}
	r.wantShare(t, "delay", "refresh_cache or look_up_price", 0.3, func(f, _ string) bool {
		return f == "look_up_price" || f == "refresh_cache"
	})
	r.wantIntervals(t, "fsync")
	r.wantIntervals(t, "nanosleep", "clock_nanosleep")
	r.wantIntervals(t, "pthread_cond_wait")
}

// TestFreeOfNothing: free(NULL) frees nothing, whatever else is remembered.
func TestFreeOfNothing(t *testing.T) {
	s := start(t, testprog.Command{Args: []string{testprog.Build(t, "freenull")}}, "--alloc-period", "1", "-m", "64M")
	if res := s.finish(t); res.Status() != 0 || string(res.Stdout) != "freenull ok\n" {
		t.Errorf("freenull: %v", res)
	}
	s.open(t) // validated: every free is of an allocation
}
