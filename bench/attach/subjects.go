package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// subject is a program that is attached to.
type subject struct {
	name    string
	command func(dir string, port int) ([]string, error) // an error: why it is left out
	talk    func(c *conn) error                          // one request and its answer; nil: the program checks itself, and prints RIGHT at SIGTERM
	user    uint32                                       // it runs as; 0: as we do
	threads int                                          // wait for so many
}

// conn is a client's connection.
type conn struct {
	net.Conn
	r *bufio.Reader
	n int
}

func program(names ...string) (string, error) {
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no %s", names[0])
}

func compiled(dir, source string, compiler string, flags ...string) (string, error) {
	exe := filepath.Join(dir, strings.TrimSuffix(filepath.Base(source), filepath.Ext(source)))
	args := append([]string{"-O2", "-o", exe, filepath.Join("bench/attach/programs", source)}, flags...)
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", compiler, err, out)
	}
	return exe, nil
}

const nobody = 65534

func subjects() []subject {
	server := func(name string, args func(program, dir string, port int) []string) func(string, int) ([]string, error) {
		return func(dir string, port int) ([]string, error) {
			p, err := program(name, "/usr/sbin/"+name)
			if err != nil {
				return nil, err
			}
			return args(p, dir, port), nil
		}
	}
	return []subject{
		{name: "redis", talk: talkRedis, command: server("redis-server", func(p, dir string, port int) []string {
			return []string{p, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no", "--dir", dir}
		})},
		{name: "nginx", talk: talkHTTP, command: server("nginx", func(p, dir string, port int) []string {
			conf := filepath.Join(dir, "nginx.conf")
			text := fmt.Sprintf("daemon off; master_process off; pid %[1]s/nginx.pid; error_log /dev/null; events {} http { access_log off; keepalive_requests 100000000; "+
				"client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s; "+
				"server { listen 127.0.0.1:%[2]d; location / { return 200 'hello\\n'; } } }", dir, port)
			os.WriteFile(conf, []byte(text), 0o644)
			return []string{p, "-e", "/dev/null", "-p", dir, "-c", conf}
		})},
		{name: "memcached", talk: talkMemcached, command: server("memcached", func(p, _ string, port int) []string {
			return []string{p, "-u", "nobody", "-l", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "0"}
		})},
		{name: "PostgreSQL", talk: talkPostgres, command: postgres, user: nobody},
		{name: "node", talk: talkHTTP, command: server("node", func(p, _ string, port int) []string {
			return []string{p, "-e", fmt.Sprintf("require('http').createServer((q, a) => { a.end('hello\\n'.repeat(1 + Math.random() * 3)) }).listen(%d, '127.0.0.1')", port)}
		})},
		{name: "python", talk: talkHTTP, command: func(_ string, port int) ([]string, error) {
			p, err := program("/usr/bin/python3", "python3")
			return []string{p, "-c", fmt.Sprintf(pythonServer, port)}, err
		}},
		{name: "Java", talk: talkHTTP, command: func(_ string, port int) ([]string, error) {
			java, err := program("java")
			if err != nil {
				return nil, err
			}
			if _, err := program("javac"); err != nil {
				return nil, err // it compiles the source
			}
			source, err := filepath.Abs("bench/attach/programs/Server.java")
			return []string{java, source, strconv.Itoa(port)}, err
		}},
		{name: "200 threads", threads: 200, command: func(dir string, _ int) ([]string, error) {
			exe, err := compiled(dir, "many.cc", "g++", "-pthread")
			return []string{exe}, err
		}},
		{name: "10,000 sleepers", threads: 10000, command: func(dir string, _ int) ([]string, error) {
			exe, err := compiled(dir, "asleep.c", "gcc", "-pthread")
			return []string{exe}, err
		}},
	}
}

const pythonServer = `
import http.server, json
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *a): pass
    def do_GET(self):
        b = (json.dumps([i * 3 for i in range(50)]) + '\n').encode()
        self.send_response(200); self.send_header('Content-Length', str(len(b))); self.end_headers(); self.wfile.write(b)
http.server.ThreadingHTTPServer(('127.0.0.1', %d), H).serve_forever()
`

// postgres makes a cluster and a command for it.
func postgres(dir string, port int) ([]string, error) {
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	bins = append(bins, "/usr/local/bin", "/usr/bin")
	for _, bin := range bins {
		initdb := filepath.Join(bin, "initdb")
		if _, err := os.Stat(initdb); err != nil {
			continue
		}
		data := filepath.Join(dir, "pg")
		if err := errors.Join(os.Mkdir(data, 0o700), os.Chown(data, nobody, nobody)); err != nil {
			return nil, err
		}
		c := exec.Command(initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
		c.Dir, c.SysProcAttr = data, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if out, err := c.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
		}
		return []string{filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=" + data, "-c", "fsync=off"}, nil
	}
	return nil, errors.New("no initdb")
}

func (c *conn) line() (string, error) {
	s, err := c.r.ReadString('\n')
	return strings.TrimRight(s, "\r\n"), err
}

func talkRedis(c *conn) error {
	c.n++
	v := strconv.Itoa(c.n)
	key := "k" + c.LocalAddr().String()
	fmt.Fprintf(c, "SET %s %s\r\nGET %s\r\n", key, v, key)
	for _, want := range []string{"+OK", "$" + strconv.Itoa(len(v)), v} {
		if got, err := c.line(); err != nil || got != want {
			return fmt.Errorf("%q instead of %q (%v)", got, want, err)
		}
	}
	return nil
}

func talkMemcached(c *conn) error {
	c.n++
	v := strconv.Itoa(c.n)
	key := "k" + strings.ReplaceAll(c.LocalAddr().String(), ":", "-")
	fmt.Fprintf(c, "set %s 0 0 %d\r\n%s\r\nget %s\r\n", key, len(v), v, key)
	for _, want := range []string{"STORED", fmt.Sprintf("VALUE %s 0 %d", key, len(v)), v, "END"} {
		if got, err := c.line(); err != nil || got != want {
			return fmt.Errorf("%q instead of %q (%v)", got, want, err)
		}
	}
	return nil
}

func talkHTTP(c *conn) error {
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	length, chunked := -1, false
	for first := true; ; first = false {
		l, err := c.line()
		if err != nil || first && !strings.HasPrefix(l, "HTTP/1.1 200") {
			return fmt.Errorf("%q (%v)", l, err)
		}
		if l == "" {
			break
		}
		if k, v, _ := strings.Cut(strings.ToLower(l), ": "); k == "content-length" {
			length, _ = strconv.Atoi(v)
		} else if k == "transfer-encoding" {
			chunked = v == "chunked"
		}
	}
	for chunked {
		l, err := c.line()
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(l, 16, 32)
		if err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, c.r, n+2); err != nil || n == 0 {
			return err
		}
	}
	_, err := io.CopyN(io.Discard, c.r, int64(max(length, 0)))
	return err
}

// talkPostgres speaks enough of the protocol for a query: docs of PostgreSQL, "Message Formats".
func talkPostgres(c *conn) error {
	if c.n == 0 {
		body := "\x00\x03\x00\x00user\x00postgres\x00database\x00postgres\x00\x00"
		fmt.Fprintf(c, "\x00\x00\x00%c%s", len(body)+4, body)
		if _, err := c.ready(); err != nil {
			return err
		}
	}
	c.n++
	query := fmt.Sprintf("select sum(i) + %d from generate_series(1, 100) i\x00", c.n)
	fmt.Fprintf(c, "Q\x00\x00\x00%c%s", len(query)+4, query)
	row, err := c.ready()
	if want := strconv.Itoa(5050 + c.n); err == nil && !strings.HasSuffix(row, want) {
		return fmt.Errorf("the answer is %q, not %s", row, want)
	}
	return err
}

// ready reads messages up to ReadyForQuery, and returns the last row.
func (c *conn) ready() (row string, err error) {
	for {
		var head [5]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			return "", err
		}
		body := make([]byte, int(head[1])<<24|int(head[2])<<16|int(head[3])<<8|int(head[4])-4)
		if _, err := io.ReadFull(c.r, body); err != nil {
			return "", err
		}
		switch head[0] {
		case 'E':
			return "", fmt.Errorf("%q", body)
		case 'D':
			row = string(body)
		case 'Z':
			return row, nil
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func dial(port int) (*conn, error) {
	c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, r: bufio.NewReader(c)}, nil
}
