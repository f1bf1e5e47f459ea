package main

// servers.go: real programs under load: redis, nginx and memcached, whose requests are timed, and sqlite3,
// which measures itself. Loads run on loopback and end by themselves.

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// server is a program that listens, and a load for it.
type server struct {
	name    string
	program string
	command func(program string, port int, dir string) ([]string, error)
	client  string // a program in PATH that makes the load; "" none
	load    func(port int) (took latency, requests int, err error)
}

func servers(names []string) (list []subject) {
	for _, s := range []server{
		{name: "redis", program: "redis-server", client: "redis-benchmark", load: loadRedis,
			command: func(program string, port int, dir string) ([]string, error) {
				return []string{program, "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", dir, "--daemonize", "no"}, nil
			}},
		{name: "nginx", program: "nginx", client: "wrk", load: loadNginx, command: nginxCommand},
		{name: "memcached", program: "memcached", load: loadMemcached,
			command: func(program string, port int, _ string) ([]string, error) {
				return []string{program, "-u", "nobody", "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0"}, nil
			}},
	} {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		program, skip := findProgram(s.program)
		if _, why := findProgram(s.client); s.client != "" && skip == "" {
			skip = why
		}
		list = append(list, subject{name: s.name, skip: skip, run: func(t *tool, dir string) (run1, error) { return s.run(t, program, dir) }})
	}
	if len(names) == 0 || slices.Contains(names, "sqlite3") {
		program, skip := findProgram("sqlite3")
		list = append(list, subject{name: "sqlite3", skip: skip, run: func(t *tool, dir string) (run1, error) { return runSqlite(t, program, dir) }})
	}
	return list
}

func findProgram(name string) (path, missing string) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin") {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); name != "" && err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p, ""
		}
	}
	return "", "no " + name
}

// run starts the server under the tool, loads it, and ends it with SIGTERM. Its CPU time is read from /proc before.
func (s *server) run(t *tool, program, dir string) (r run1, err error) {
	port, err := freePort()
	if err != nil {
		return r, err
	}
	command, err := s.command(program, port, filepath.Dir(dir))
	if err != nil {
		return r, err
	}
	args, env := t.wrap(dir, command)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return r, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // whatever is left of the group
	if err := awaitPort(port, ended); err != nil {
		return r, fmt.Errorf("%w: %.200s", err, out.Bytes())
	}
	pid := member(cmd.Process.Pid, filepath.Base(program))
	before := cpuOf(pid)
	begun := time.Now()
	r.latency, r.requests, err = s.load(port)
	r.wall, r.cpu = time.Since(begun), cpuOf(pid)-before
	if pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGTERM) // gone already: an error of the load says so
	}
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		err = fmt.Errorf("%s did not end within 30 s of SIGTERM", s.name)
	}
	return r, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func awaitPort(port int, ended <-chan error) error {
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			return fmt.Errorf("it ended before it listened: %w", err)
		default:
		}
		if c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("nobody listens on port %d", port)
}

// member is the newest process of a group that runs a program of that name; 0 none. strace and others start it as a child of
// theirs.
func member(group int, name string) (pid int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // only error: a malformed pattern
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
		fields := strings.Fields(string(data[end+1:]))
		if open < 0 || end < 0 || len(fields) < 3 || fields[2] != strconv.Itoa(group) || !strings.HasPrefix(name, string(data[open+1:min(end, open+16)])) {
			continue
		}
		if p, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && p > pid {
			pid = p
		}
	}
	return pid
}

// cpuOf is user and system time from /proc/PID/stat, in steps of 10 ms.
func cpuOf(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64) // the kernel writes numbers
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond
}

func loadRedis(port int) (took latency, requests int, err error) {
	const n = 40000
	out, err := exec.Command("redis-benchmark", "-p", strconv.Itoa(port), "-t", "set", "-n", strconv.Itoa(n), "-c", "32", "--csv").CombinedOutput()
	if err != nil {
		return took, 0, fmt.Errorf("redis-benchmark: %w: %.200s", err, out)
	}
	// "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Split(strings.ReplaceAll(strings.TrimSpace(line), `"`, ""), ",")
		if len(f) == 8 && f[0] == "SET" {
			p50, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				return took, 0, err
			}
			p99, err := strconv.ParseFloat(f[6], 64)
			return latency{p50: time.Duration(p50 * 1e6), p99: time.Duration(p99 * 1e6)}, n, err
		}
	}
	return took, 0, fmt.Errorf("redis-benchmark said nothing of SET: %.200s", out)
}

func nginxCommand(program string, port int, dir string) ([]string, error) {
	conf, page := filepath.Join(dir, "nginx.conf"), filepath.Join(dir, "index.html")
	if err := os.WriteFile(page, bytes.Repeat([]byte("a page of some bytes\n"), 200), 0o644); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/error.log;\n"+
		"events { worker_connections 256; }\nhttp { access_log off; server { listen 127.0.0.1:%[2]d; root %[1]s; } }\n", dir, port)
	return []string{program, "-p", dir, "-c", conf}, os.WriteFile(conf, []byte(text), 0o644)
}

func loadNginx(port int) (took latency, requests int, err error) {
	out, err := exec.Command("wrk", "-t", "1", "-c", "16", "-d", "3s", "--latency", fmt.Sprintf("http://127.0.0.1:%d/index.html", port)).CombinedOutput()
	if err != nil {
		return took, 0, fmt.Errorf("wrk: %w: %.200s", err, out)
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) == 2 && (f[0] == "50%" || f[0] == "99%") {
			d, err := time.ParseDuration(f[1])
			if err != nil {
				return took, 0, err
			}
			if f[0] == "50%" {
				took.p50 = d
			} else {
				took.p99 = d
			}
		}
		if len(f) > 3 && f[1] == "requests" && f[2] == "in" {
			if requests, err = strconv.Atoi(f[0]); err != nil {
				return took, 0, err
			}
		}
	}
	if took.p99 == 0 || requests == 0 {
		return took, 0, fmt.Errorf("wrk named no 99%% or no requests: %.300s", out)
	}
	return took, requests, nil
}

// loadMemcached asks and stores in turn over eight connections, one request under way on each.
func loadMemcached(port int) (took latency, requests int, err error) {
	const clients, each = 8, 8000
	times := make([][]time.Duration, clients)
	failed := make([]error, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				failed[c] = err
				return
			}
			defer conn.Close()
			replies := bufio.NewReader(conn)
			value := strings.Repeat("v", 200)
			for i := range each {
				begun := time.Now()
				request, end := fmt.Sprintf("set key%d 0 0 %d\r\n%s\r\n", i%500, len(value), value), "STORED\r\n"
				if i%2 == 1 {
					request, end = fmt.Sprintf("get key%d\r\n", (i-1)%500), "END\r\n"
				}
				if _, failed[c] = conn.Write([]byte(request)); failed[c] != nil {
					return
				}
				for line := ""; line != end; {
					if line, failed[c] = replies.ReadString('\n'); failed[c] != nil {
						return
					}
				}
				times[c] = append(times[c], time.Since(begun))
			}
		})
	}
	all.Wait()
	for _, err := range failed {
		if err != nil {
			return took, 0, fmt.Errorf("memcached: %w", err)
		}
	}
	sorted := slices.Concat(times...)
	slices.Sort(sorted)
	n := len(sorted)
	return latency{sorted[n/2], sorted[n*99/100], sorted[n*999/1000]}, n, nil
}

// runSqlite has sqlite3 time its own statements.
func runSqlite(t *tool, program, dir string) (r run1, err error) {
	script := filepath.Join(filepath.Dir(dir), "script.sql")
	err = os.WriteFile(script, []byte(`.timer on
create table t(a integer primary key, b text, c real);
with recursive n(x) as (select 1 union all select x+1 from n where x < 400000) insert into t select x, 'row ' || (x * 7919 % 100003), x * 0.5 from n;
create index i on t(b);
select count(*), sum(a) from t x join t y using (b) where x.c < 20000;
select b, count(*) from t where b like '%99%' group by substr(b, 5, 2) order by 2 desc, 1 limit 5;
`), 0o644)
	if err != nil {
		return r, err
	}
	args, env := t.wrap(dir, []string{program, "-init", script, ":memory:", ".quit"})
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("%w: %.200s", err, out)
	}
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		var real, user, sys float64
		if n, _ := fmt.Sscanf(s.Text(), "Run Time: real %g user %g sys %g", &real, &user, &sys); n == 3 {
			r.wall += time.Duration(real * 1e9)
			r.cpu += time.Duration((user + sys) * 1e9)
		}
	}
	if r.wall == 0 {
		return r, fmt.Errorf("sqlite3 timed nothing: %.200s", out)
	}
	return r, nil
}
