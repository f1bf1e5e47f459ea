package symbols

// This file owns debuginfod: debug files by build id from the servers that DEBUGINFOD_URLS names. Without that variable
// nothing is ever asked for over a network. Variables and cache are those of elfutils' client (debuginfod-find(1)), so that
// what gdb has fetched is not fetched again, and the other way round.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	debuginfodTimeout = 90 * time.Second // DEBUGINFOD_TIMEOUT: for the next 100 KB
	debuginfodSlowest = 100 << 10        // bytes in that time
	debuginfodMaxSize = 4 << 30          // DEBUGINFOD_MAXSIZE
	debuginfodMiss    = 600 * time.Second
	debuginfodMaxURLs = 16
)

// debuginfod is a client. It may be used from several goroutines.
type debuginfod struct {
	urls     []string
	cache    string
	timeout  time.Duration
	maxTime  time.Duration // for one file; 0 none
	maxSize  int64
	progress io.Writer // a line per download; nil: silent
	http     *http.Client
	stop     <-chan struct{}

	mu   sync.Mutex
	down map[string]bool // servers that could not be reached
}

// newDebuginfod returns the client that the environment asks for; nil when it names no server.
func newDebuginfod(env func(string) string, stop <-chan struct{}) *debuginfod {
	d := &debuginfod{timeout: debuginfodTimeout, maxSize: debuginfodMaxSize, stop: stop, down: map[string]bool{}}
	for _, u := range strings.Fields(env("DEBUGINFOD_URLS")) {
		if (strings.HasPrefix(u, "http://") || strings.HasPrefix(u, "https://")) && len(d.urls) < debuginfodMaxURLs {
			d.urls = append(d.urls, strings.TrimRight(u, "/"))
		}
	}
	if len(d.urls) == 0 {
		return nil
	}
	if n, err := strconv.Atoi(env("DEBUGINFOD_TIMEOUT")); err == nil && n > 0 {
		d.timeout = time.Duration(n) * time.Second
	}
	if n, err := strconv.Atoi(env("DEBUGINFOD_MAXTIME")); err == nil && n > 0 {
		d.maxTime = time.Duration(n) * time.Second
	}
	if n, err := strconv.ParseInt(env("DEBUGINFOD_MAXSIZE"), 10, 64); err == nil && n > 0 {
		d.maxSize = n
	}
	if env("DEBUGINFOD_PROGRESS") != "" {
		d.progress = os.Stderr
	}
	d.cache = env("DEBUGINFOD_CACHE_PATH")
	home := env("HOME")
	if old := filepath.Join(home, ".debuginfod_client_cache"); d.cache == "" && home != "" {
		if st, err := os.Stat(old); err == nil && st.IsDir() {
			d.cache = old
		}
	}
	if d.cache == "" {
		if base := env("XDG_CACHE_HOME"); base != "" {
			d.cache = filepath.Join(base, "debuginfod_client")
		} else if home != "" {
			d.cache = filepath.Join(home, ".cache", "debuginfod_client")
		}
	}
	d.http = &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: d.timeout, DisableCompression: true, MaxIdleConnsPerHost: maxWorkers,
	}}
	return d
}

// find returns the path of the debug file with a build id, in the cache. The error is fs.ErrNotExist where no server has it.
func (d *debuginfod) find(id, of string) (string, error) {
	if d.cache == "" {
		return "", errors.New("debuginfod: no cache directory: set DEBUGINFOD_CACHE_PATH")
	}
	path := filepath.Join(d.cache, id, "debuginfo")
	if st, err := os.Stat(path); err == nil {
		if st.Size() > 0 {
			return path, nil
		}
		// An empty file says that nobody had it.
		if time.Since(st.ModTime()) < d.missTime() {
			return "", fs.ErrNotExist
		}
	}
	var failed error
	skipped := false
	for _, url := range d.urls {
		d.mu.Lock()
		down := d.down[url]
		d.mu.Unlock()
		if down {
			skipped = true
			continue
		}
		err := d.fetch(url, id, path, of)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", url, err))
		}
	}
	if failed != nil {
		return "", failed
	}
	if skipped {
		return "", errDown
	}
	// For a while nobody asks again. Failing to say so costs a request next time.
	if os.MkdirAll(filepath.Dir(path), 0o700) == nil {
		os.Remove(path)
		if f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0); err == nil {
			f.Close()
		}
	}
	return "", fs.ErrNotExist
}

var errDown = errors.New("a debuginfod server that did not answer is not asked again")

// missTime is how long a miss is believed: cache_miss_s of the cache directory.
func (d *debuginfod) missTime() time.Duration {
	if b, err := os.ReadFile(filepath.Join(d.cache, "cache_miss_s")); err == nil {
		if n, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && n >= 0 {
			return time.Duration(n) * time.Second
		}
	}
	return debuginfodMiss
}

// fetch downloads a debug file to path. What arrives is looked at before it gets its name: it has to be of that build.
func (d *debuginfod) fetch(url, id, path, of string) (err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-d.stop: // nil: never
			cancel(errors.New("interrupted"))
		case <-finished:
		}
	}()
	if d.maxTime > 0 {
		t := time.AfterFunc(d.maxTime, func() { cancel(fmt.Errorf("took more than %v", d.maxTime)) })
		defer t.Stop()
	}
	slow := time.AfterFunc(d.timeout, func() { cancel(fmt.Errorf("less than %d KB in %v", debuginfodSlowest>>10, d.timeout)) })
	defer slow.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/buildid/"+id+"/debuginfo", nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "hbtrace")
	if d.progress != nil {
		fmt.Fprintf(d.progress, "hbtrace: asking %s for debug information of %s\n", url, of)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		d.mu.Lock()
		d.down[url] = true
		d.mu.Unlock()
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fs.ErrNotExist
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("answered %s", resp.Status)
	case resp.ContentLength > d.maxSize:
		return fmt.Errorf("%d MiB are more than DEBUGINFOD_MAXSIZE allows", resp.ContentLength>>20)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "debuginfo.")
	if err != nil {
		return err
	}
	defer func() {
		tmp.Close()
		if err != nil {
			os.Remove(tmp.Name())
		}
	}()
	var n, since int64
	buf := make([]byte, 64<<10)
	for {
		k, err := resp.Body.Read(buf)
		if n += int64(k); n > d.maxSize {
			return fmt.Errorf("more than %d MiB", d.maxSize>>20)
		}
		if _, err := tmp.Write(buf[:k]); err != nil {
			return err
		}
		if since += int64(k); since >= debuginfodSlowest {
			since = 0
			slow.Reset(d.timeout)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
	}
	if got, err := BuildID(tmp); err != nil || got != id {
		return fmt.Errorf("sent a file of build id %s, wanted %s: not used", orNone(got), id)
	}
	if err := tmp.Chmod(0o400); err != nil {
		return err
	}
	os.Remove(path) // an empty file: a miss of before
	return os.Rename(tmp.Name(), path)
}

// fromServer opens the debug file with a build id that a server has; nil, with a note if anything went wrong.
func (r *Resolver) fromServer(id, of string) *image {
	if r.servers == nil || !isBuildID(id) {
		return nil
	}
	path, err := r.servers.find(id, of)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errDown) {
			r.note("debug information of %s: %v", of, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
		return nil
	}
	f, err := openRegular(path)
	if err != nil {
		r.note("debug file %s: %v", path, err)
		return nil
	}
	im, err := newImage(path, f)
	if err != nil {
		r.note("debug file %s: %v", path, err)
		return nil
	}
	if im.buildID != id {
		r.note("debug file %s: build id %s, wanted %s: not used", path, orNone(im.buildID), id)
		im.close()
		return nil
	}
	return im
}
