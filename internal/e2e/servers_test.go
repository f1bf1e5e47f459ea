package e2e

// servers_test.go: redis, memcached and nginx from Debian, under load over loopback.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

func TestRedis(t *testing.T) {
	server := testprog.LookPath(t, "redis-server", "redis-server")
	bench, cli := testprog.LookPath(t, "redis-benchmark", "redis-tools"), testprog.LookPath(t, "redis-cli", "redis-tools")
	port := freePort(t)
	s := start(t, testprog.Command{Args: []string{server, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--daemonize", "no", "--dir", t.TempDir()}})
	waitPort(t, s, port)
	out, err := exec.Command(bench, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-n", "30000", "-c", "20", "-q", "-t", "set,get,lpush,lrange_100").CombinedOutput()
	if err != nil {
		t.Fatalf("redis-benchmark: %v\n%s", err, out)
	}
	t.Logf("%s", lastLines(string(out), 6))
	// what it keeps is right
	c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "SET answer 42\r\nGET answer\r\nBGSAVE\r\nQUIT\r\n")
	reply, err := io.ReadAll(c)
	c.Close()
	await(t, "redis has saved", func() bool { // or it would kill its child, perhaps before that has run at all
		out, err := exec.Command(cli, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "info", "persistence").Output()
		return err == nil && strings.Contains(string(out), "rdb_bgsave_in_progress:0")
	})
	if err != nil || !strings.HasPrefix(string(reply), "+OK\r\n$2\r\n42\r\n") {
		t.Errorf("redis replied %q (%v)", reply, err)
	}
	res := s.terminate(t)
	if res.Status() != 0 {
		t.Errorf("redis-server ended on SIGTERM with %v", res)
	}
	r := s.open(t)
	r.wantShare(t, "cpu", "redis-server itself", 0.3, module("redis-"))
	r.wantIntervals(t, "epoll_wait")
	if n := r.threadsNamed("bio_"); n < 2 {
		t.Errorf("%d threads are called bio_…, redis starts three", n)
	}
	if len(r.Processes()) < 2 {
		t.Errorf("BGSAVE's child is not in the recording: %d processes", len(r.Processes()))
	}
}

func TestMemcached(t *testing.T) {
	server := testprog.LookPath(t, "memcached", "memcached")
	port := freePort(t)
	args := []string{server, "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0", "-t", "4", "-m", "32"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "nobody") // and so changes its user while it is recorded
	}
	s := start(t, testprog.Command{Args: args})
	waitPort(t, s, port)
	memcachedLoad(t, fmt.Sprintf("127.0.0.1:%d", port), 24, 2500)
	if mc, err := exec.LookPath("memcslap"); err == nil {
		if out, err := exec.Command(mc, "--servers", fmt.Sprintf("127.0.0.1:%d", port), "--concurrency=4", "--execute-number=500", "--test=get").CombinedOutput(); err != nil {
			t.Errorf("memcslap: %v\n%s", err, out)
		}
	}
	res := s.terminate(t)
	if res.Status() != 0 {
		t.Errorf("memcached ended on SIGTERM with %v", res)
	}
	r := s.open(t)
	r.wantShare(t, "cpu", "memcached itself", 0.15, module("memcached"))
	r.wantIntervals(t, "epoll_wait", "epoll_pwait")
	r.wantIntervals(t, "pthread_mutex_lock") // between its worker threads
	if n := r.threadsNamed("mc-worker"); n < 4 && len(r.Threads()) < 6 {
		t.Errorf("%d worker threads of %d", n, len(r.Threads()))
	}
}

// memcachedLoad sets and gets over the text protocol on several connections that share their keys, so that
// workers contend for the same items, and checks every answer.
func memcachedLoad(t *testing.T, addr string, conns, rounds int) {
	t.Helper()
	var wg sync.WaitGroup
	for n := range conns {
		wg.Go(func() {
			if err := memcachedClient(addr, n, rounds); err != nil {
				t.Errorf("memcached client %d: %v", n, err)
			}
		})
	}
	wg.Wait()
}

func memcachedClient(addr string, n, rounds int) error {
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r, w := bufio.NewReader(c), bufio.NewWriter(c)
	line := func() (string, error) {
		s, err := r.ReadString('\n')
		return strings.TrimRight(s, "\r\n"), err
	}
	for i := range rounds {
		key := fmt.Sprintf("key-%d", (i*7+n)%50)
		value := strings.Repeat(key, 1+i%40)
		fmt.Fprintf(w, "set %s 0 0 %d\r\n%s\r\nget %s\r\n", key, len(value), value, key)
		if err := w.Flush(); err != nil {
			return err
		}
		if s, err := line(); err != nil || s != "STORED" {
			return fmt.Errorf("set %s: %q, %v", key, s, err)
		}
		head, err := line()
		if err != nil {
			return err
		}
		f := strings.Fields(head)
		if len(f) != 4 || f[0] != "VALUE" || f[1] != key {
			return fmt.Errorf("get %s: %q", key, head)
		}
		data, err := line() // keys are shared: any client's value of it
		if err != nil || len(data) == 0 || strings.ReplaceAll(data, key, "") != "" || strconv.Itoa(len(data)) != f[3] {
			return fmt.Errorf("get %s: %q, %v", key, data, err)
		}
		if s, err := line(); err != nil || s != "END" {
			return fmt.Errorf("get %s: %q, %v", key, s, err)
		}
	}
	return nil
}

func TestNginx(t *testing.T) {
	server := testprog.LookPath(t, "nginx", "nginx")
	wrk := testprog.LookPath(t, "wrk", "wrk")
	dir := t.TempDir()
	port := freePort(t)
	html := strings.Repeat("<p>a page</p>\n", 500)
	conf := fmt.Sprintf(`%s
daemon off;
worker_processes 2;
pid %[2]s/nginx.pid;
error_log stderr warn;
events { worker_connections 512; }
http {
  access_log off;
  client_body_temp_path %[2]s/body; proxy_temp_path %[2]s/proxy; fastcgi_temp_path %[2]s/fastcgi;
  uwsgi_temp_path %[2]s/uwsgi; scgi_temp_path %[2]s/scgi;
  gzip on; gzip_types *; gzip_min_length 10;
  server { listen 127.0.0.1:%[3]d; root %[2]s; location /hello { return 200 "hello\n"; } }
}
`, map[bool]string{true: "user nobody nogroup;", false: ""}[os.Getuid() == 0], dir, port)
	write(t, filepath.Join(dir, "nginx.conf"), conf)
	write(t, filepath.Join(dir, "index.html"), html)
	for d := dir; len(d) > len(os.TempDir()); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { // the workers are nobody
			t.Fatal(err)
		}
	}
	// Often, for the shares below: the load is for a time, and on a busy machine there is little of it.
	s := start(t, testprog.Command{Args: []string{server, "-p", dir, "-c", filepath.Join(dir, "nginx.conf")}}, "-F", "999")
	waitPort(t, s, port)
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)
	get := func(path string) string {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET %s HTTP/1.0\r\n\r\n", path)
		b, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		_, body, _ := strings.Cut(string(b), "\r\n\r\n")
		return body
	}
	if got := get("/index.html"); got != html {
		t.Errorf("nginx served %d bytes of index.html, want %d", len(got), len(html))
	}
	out, err := exec.Command(wrk, "-d", "2s", "--timeout", "2m", "-t", "1", "-c", "16", "-H", "Accept-Encoding: gzip", url+"index.html").CombinedOutput()
	if err != nil || strings.Contains(string(out), "Socket errors") || strings.Contains(string(out), "Non-2xx") {
		t.Errorf("wrk: %v\n%s", err, out)
	}
	t.Logf("%s", lastLines(string(out), 3))
	if got := get("/hello"); got != "hello\n" {
		t.Errorf("after the load nginx said %q", got)
	}
	res := s.terminate(t)
	if res.Status() != 0 {
		t.Errorf("nginx ended on SIGTERM with %v", res)
	}
	r := s.open(t)
	if n := len(r.Processes()); n < 3 {
		t.Errorf("%d processes, want a master and two workers", n)
	}
	forked := 0
	for _, p := range r.Processes() {
		if p.Forked {
			forked++
		}
	}
	if forked < 2 {
		t.Errorf("%d processes were forked, want two workers", forked)
	}
	r.wantShare(t, "cpu", "nginx itself", 0.4, module("nginx"))
	r.wantShare(t, "cpu", "zlib, which compresses", 0.08, module("libz")) // 13 to 22 % by nine recordings, the rest is the kernel's
	r.wantIntervals(t, "epoll_wait")
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(s, "\r", "\n")), "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "\n")
}
