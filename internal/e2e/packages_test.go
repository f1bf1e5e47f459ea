package e2e

// packages_test.go: more programs from Debian's packages: runtimes with signals, stacks and allocators of their own, a
// database of many processes, tools that start others. Each is skipped where it is not installed.

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestJava: HotSpot runs on SIGSEGV handlers, stack banging and generated code.
func TestJava(t *testing.T) {
	java, javac := testprog.LookPath(t, "java", "default-jre-headless"), testprog.LookPath(t, "javac", "default-jdk-headless")
	dir := t.TempDir()
	write(t, filepath.Join(dir, "Work.java"), `
import java.util.*;
import java.util.concurrent.*;

public class Work {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    static int fall(int n) { return fall(n + 1) + 1; }
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Integer>> jobs = new ArrayList<>();
        for (int i = 0; i < 8; i++) {
            final int k = i;
            jobs.add(pool.submit(() -> {
                synchronized (Work.class) { Thread.sleep(2); }
                return fib(27 + k % 3);
            }));
        }
        long sum = 0;
        for (Future<Integer> j : jobs) sum += j.get();
        pool.shutdown();
        try { fall(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        try { Object o = null; o.toString(); } catch (NullPointerException e) { System.out.println("null"); }
        System.gc();
        System.out.println(sum);
        System.out.println(new ProcessBuilder("sh", "-c", "echo child; exit 4").inheritIO().start().waitFor());
        System.exit(7);
    }
}`)
	if out, err := exec.Command(javac, "-d", dir, filepath.Join(dir, "Work.java")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s, bare := compare(t, testprog.Command{Args: []string{java, "-cp", dir, "Work"}})
	if bare.Code != 7 {
		t.Errorf("java: %v", bare)
	}
	if r := s.open(t); len(r.Threads()) < 5 {
		t.Errorf("%d threads, want the pool's four and main at least", len(r.Threads()))
	}
}

func TestNode(t *testing.T) {
	node := testprog.LookPath(t, "node", "nodejs")
	script := filepath.Join(t.TempDir(), "work.js")
	write(t, script, `
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
if (isMainThread) {
  let sum = 0, done = 0;
  for (let i = 0; i < 4; i++) {
    const w = new Worker(__filename, { workerData: i });
    w.on('message', m => { sum += m; });
    w.on('exit', () => {
      if (++done < 4) return;
      console.log(sum);
      require('child_process').exec('echo sub; exit 3', (e, out) => {
        console.log(e.code, out.trim());
        process.exit(6);
      });
    });
  }
} else {
  let x = 0;
  for (let i = 0; i < 1e7; i++) x = (x * 31 + i) % 1000003;
  parentPort.postMessage(x + workerData);
}`)
	s, bare := compare(t, testprog.Command{Args: []string{node, script}})
	if bare.Code != 6 {
		t.Errorf("node: %v", bare)
	}
	s.open(t)
}

func TestPerlThreads(t *testing.T) {
	perl := testprog.LookPath(t, "perl", "perl")
	s, _ := compare(t, testprog.Command{Args: []string{perl, "-e", `
use threads;
my @t = map { my $n = $_; threads->create(sub { my $x = 0; $x += $_ for 1 .. 200000; select(undef, undef, undef, 0.02); $x + $n }) } 1 .. 4;
print $_->join, "\n" for @t;
for (1 .. 20) { my $pid = fork; exit $_ if !$pid; waitpid $pid, 0; print $? >> 8, "\n" }
exec "sh", "-c", "exit 5"`}})
	s.open(t)
}

// TestBuildTools: compilers and archivers start other programs with vfork, pipes and temporary files.
func TestBuildTools(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "good.c"), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n")
	write(t, filepath.Join(dir, "bad.c"), "int main(void) { return undeclared; }\n")
	repo := filepath.Join(dir, "repo")
	git := testprog.LookPath(t, "git", "git")
	for i := range 30 {
		if i == 0 {
			runIn(t, dir, git, "init", "-q", repo)
		}
		write(t, filepath.Join(repo, fmt.Sprint("f", i)), strings.Repeat(fmt.Sprintln("line", i, i*i), 300))
		runIn(t, repo, git, "add", ".")
		runIn(t, repo, git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", fmt.Sprint(i))
	}
	for _, c := range []struct {
		name    string
		program string
		args    []string
		procs   int
	}{
		{"gcc", "gcc", []string{"-O2", "-o", filepath.Join(dir, "good"), filepath.Join(dir, "good.c")}, 4},
		{"gcc-error", "gcc", []string{"-o", filepath.Join(dir, "bad"), filepath.Join(dir, "bad.c")}, 2},
		{"git-gc", "git", []string{"-C", repo, "gc", "-q", "--aggressive"}, 5},
		{"git-log", "git", []string{"-C", repo, "log", "--stat"}, 1},
		{"tar-zstd", "tar", []string{"--zstd", "-cf", filepath.Join(dir, "t.tar.zst"), "-C", "/usr/include", "."}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "tar-zstd" {
				testprog.LookPath(t, "zstd", "zstd")
			}
			s, _ := compare(t, testprog.Command{Args: append([]string{testprog.LookPath(t, c.program, c.program)}, c.args...)})
			if r := s.openTrace(t); len(r.Processes()) < c.procs {
				t.Errorf("%d processes, want at least %d", len(r.Processes()), c.procs)
			}
		})
	}
}

func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
}

// TestPostgres: a server of many processes, which has a SIGURG handler of its own and refuses to run as root.
func TestPostgres(t *testing.T) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Skip("needs postgres (Debian package postgresql)")
	}
	bin := found[len(found)-1]
	dir, err := os.MkdirTemp("", "hbtrace-e2e-") // short enough for the path of a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var as *syscall.Credential
	if os.Getuid() == 0 {
		as = &syscall.Credential{Uid: 65534, Gid: 65534}
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + dir, "LC_ALL=C"}
	run := func(program string, args ...string) testprog.Result {
		return testprog.Run(t, testprog.Command{Args: append([]string{filepath.Join(bin, program)}, args...), Env: env, Dir: dir, Cred: as})
	}
	data := filepath.Join(dir, "data")
	if res := run("initdb", "-D", data, "-U", "me", "--auth=trust", "-N"); res.Status() != 0 {
		t.Fatalf("initdb: %v", res)
	}
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{filepath.Join(bin, "postgres"), "-D", data, "-k", dir,
		"-c", "listen_addresses=", "-c", "fsync=off"}, Env: env, Dir: dir, Cred: as})
	await(t, "postgres is ready", func() bool {
		return run("pg_isready", "-q", "-h", dir, "-U", "me", "-d", "postgres").Status() == 0
	})
	if res := run("pgbench", "-h", dir, "-U", "me", "-i", "-q", "postgres"); res.Status() != 0 {
		t.Fatalf("pgbench -i: %v", res)
	}
	res := run("pgbench", "-h", dir, "-U", "me", "-c", "4", "-j", "2", "-t", "300", "postgres")
	if res.Status() != 0 || !strings.Contains(string(res.Stdout), "number of failed transactions: 0 ") {
		t.Errorf("pgbench: %v", res)
	}
	if res := run("psql", "-h", dir, "-U", "me", "-At", "-c", "select sum(g) from generate_series(1, 1000000) g", "postgres"); string(res.Stdout) != "500000500000\n" {
		t.Errorf("psql: %v", res)
	}
	// What processes call themselves is looked at once a second.
	await(t, "the checkpointer and the writer of the log are known by their titles", func() bool {
		now := testprog.Run(t, testprog.Command{Args: []string{testprog.Hbtrace(t), "top", "--json", s.prefix + ".hbt"}, Env: env, Dir: dir, Cred: as})
		return strings.Contains(string(now.Stdout), `"postgres: checkpointer`) && strings.Contains(string(now.Stdout), `"postgres: walwriter`)
	})
	if res := s.terminate(t); res.Status() != 0 {
		t.Errorf("postgres: %v", res)
	}
	r := s.open(t)
	titles := map[string]bool{}
	for _, p := range r.Processes() {
		titles[frames.Title(&p)] = true
	}
	for _, want := range []string{"postgres: checkpointer", "postgres: walwriter", "postgres: background writer"} {
		if !titles[want] {
			t.Errorf("no process is called %q: %q", want, slices.Sorted(maps.Keys(titles)))
		}
	}
	if n := len(r.Processes()); n < 9 {
		t.Errorf("%d processes, want the postmaster, its helpers and four clients' at least", n)
	}
	r.wantIntervals(t, "epoll_wait")
	r.wantIntervals(t, "sem_wait")
}
