// Package chromium drives a real Chromium for tests of pages, by the DevTools protocol over two pipes
// (--remote-debugging-pipe): no port, no driver, nothing to install but the browser itself.
package chromium

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// limit is how long anything may take: far more than it needs, so that a loaded machine does not fail a test.
const limit = 2 * time.Minute

// Browser is a running Chromium.
type Browser struct {
	cmd *exec.Cmd
	out *os.File // to it

	mu      sync.Mutex
	next    int
	waiting map[int]chan message
	pages   map[string]*Page
	gone    error
}

type message struct {
	ID      int             `json:"id"`
	Method  string          `json:"method"`
	Session string          `json:"sessionId"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Page is a tab.
type Page struct {
	b       *Browser
	t       testing.TB
	session string
	target  string

	mu       sync.Mutex
	problems []string // errors on the console, uncaught exceptions, refusals of the security policy, and dialogs
	requests []string // addresses asked for
}

// Path finds Chromium; it skips the test where there is none.
func Path(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			return p
		}
	}
	t.Skip("no chromium: install Debian's package chromium to test the page in a browser")
	return ""
}

// Start starts a Chromium without a window, with a profile that is gone afterwards.
func Start(t testing.TB) *Browser {
	t.Helper()
	path := Path(t)
	toIt, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, fromIt, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	profile, err := os.MkdirTemp("", "hbtrace-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.ExtraFiles = []*os.File{toIt, fromIt}
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting chromium: %v", err)
	}
	toIt.Close()
	fromIt.Close()
	b := &Browser{cmd: cmd, out: out, waiting: map[int]chan message{}, pages: map[string]*Page{}}
	go b.read(in)
	t.Cleanup(func() {
		out.Close() // which ends it
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(limit):
			cmd.Process.Kill()
			<-ended
		}
		os.RemoveAll(profile)
	})
	return b
}

// read takes messages, which end in a NUL byte.
func (b *Browser) read(in *os.File) {
	defer in.Close()
	r := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := r.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			b.gone = errors.New("chromium went away")
			for id, c := range b.waiting {
				close(c)
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answer, page := b.waiting[m.ID], b.pages[m.Session]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		if answer != nil {
			answer <- m
		} else if page != nil {
			page.event(&m)
		}
	}
}

func (b *Browser) call(session, method string, params, result any) error {
	b.mu.Lock()
	if b.gone != nil {
		b.mu.Unlock()
		return b.gone
	}
	b.next++
	id := b.next
	answer := make(chan message, 1)
	b.waiting[id] = answer
	b.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	body, err := json.Marshal(struct {
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Session string `json:"sessionId,omitempty"`
		Params  any    `json:"params"`
	}{id, method, session, params})
	if err != nil {
		return err
	}
	if _, err := b.out.Write(append(body, 0)); err != nil {
		return err
	}
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return errors.New("chromium went away")
		case m.Error != nil:
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		case result != nil:
			return json.Unmarshal(m.Result, result)
		}
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s: no answer in %v", method, limit)
	}
}

type values map[string]any

// Open opens a tab of a size in CSS pixels at an address.
func (b *Browser) Open(t testing.TB, url string, width, height int, scale float64) *Page {
	t.Helper()
	p := &Page{b: b, t: t}
	var target struct{ TargetID string }
	p.must(b.call("", "Target.createTarget", values{"url": "about:blank"}, &target))
	var attached struct{ SessionID string }
	p.must(b.call("", "Target.attachToTarget", values{"targetId": target.TargetID, "flatten": true}, &attached))
	p.session = attached.SessionID
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.must(p.call(domain+".enable", nil, nil))
	}
	p.Resize(width, height, scale)
	p.must(p.call("Page.navigate", values{"url": url}, nil))
	p.target = target.TargetID
	t.Cleanup(p.Close)
	return p
}

// Close closes the tab. A tab behind another one draws nothing: tests have one open at a time.
func (p *Page) Close() {
	p.b.call("", "Target.closeTarget", values{"targetId": p.target}, nil) // closed already: no matter
}

// Resize sets the size of what is shown; scale is the number of device pixels in a CSS pixel.
func (p *Page) Resize(width, height int, scale float64) {
	p.t.Helper()
	p.must(p.call("Emulation.setDeviceMetricsOverride", values{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": false}, nil))
}

// Dark sets whether the system is said to be dark.
func (p *Page) Dark(dark bool) {
	p.t.Helper()
	v := map[bool]string{true: "dark", false: "light"}[dark]
	p.must(p.call("Emulation.setEmulatedMedia", values{"features": []values{{"name": "prefers-color-scheme", "value": v}}}, nil))
}

func (p *Page) call(method string, params, result any) error {
	return p.b.call(p.session, method, params, result)
}

func (p *Page) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("chromium: %v", err)
	}
}

func (p *Page) event(m *message) {
	var v struct {
		Type    string
		Message string
		URL     string
		Args    []struct {
			Value       any
			Description string
		}
		Entry            struct{ Level, Text, URL string }
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string }
		}
		Request struct{ URL string }
	}
	if json.Unmarshal(m.Params, &v) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Runtime.exceptionThrown":
		p.problems = append(p.problems, "exception: "+v.ExceptionDetails.Text+" "+v.ExceptionDetails.Exception.Description)
	case "Runtime.consoleAPICalled":
		if v.Type == "error" || v.Type == "assert" {
			p.problems = append(p.problems, fmt.Sprintf("console: %+v", v.Args))
		}
	case "Log.entryAdded":
		if v.Entry.Level == "error" {
			p.problems = append(p.problems, "log: "+v.Entry.Text+" "+v.Entry.URL)
		}
	case "Page.javascriptDialogOpening":
		p.problems = append(p.problems, "dialog: "+v.Message)
		go p.call("Page.handleJavaScriptDialog", values{"accept": true}, nil)
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, v.Request.URL)
	}
}

// Problems are the errors that the page met since the last time it was asked.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.problems
	p.problems = nil
	return out
}

// Requests are the addresses that the page asked for.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Eval runs an expression in the page, waits for it where it is a promise, and stores its value in result (nil: drops it).
func (p *Page) Eval(expression string, result any) {
	p.t.Helper()
	p.must(p.eval(expression, result))
}

func (p *Page) eval(expression string, result any) error {
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	if err := p.call("Runtime.evaluate", values{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out); err != nil {
		return err
	}
	if e := out.ExceptionDetails; e != nil {
		return fmt.Errorf("%s %s\nin %s", e.Text, e.Exception.Description, expression)
	}
	if result == nil || len(out.Result.Value) == 0 {
		return nil
	}
	return json.Unmarshal(out.Result.Value, result)
}

// Await waits until an expression is true.
func (p *Page) Await(expression string) {
	p.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(30 * time.Millisecond) {
		var ok bool
		err := p.eval("!!("+expression+")", &ok)
		if err == nil && ok {
			return
		}
		if time.Now().After(end) {
			var text string
			p.eval("document.body.innerText.slice(0, 600)", &text)
			p.t.Fatalf("never true: %s (%v)\nproblems: %q\nthe page says: %s", expression, err, p.Problems(), text)
		}
	}
}

// codes are those of keys that the browser itself looks at.
var codes = map[string]int{"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}

// Key presses a key, named as in KeyboardEvent.key.
func (p *Page) Key(key string) {
	p.t.Helper()
	down := values{"type": "keyDown", "key": key, "windowsVirtualKeyCode": codes[key]}
	if len([]rune(key)) == 1 {
		down["text"] = key
	} else if key == "Enter" {
		down["text"] = "\r"
	}
	p.must(p.call("Input.dispatchKeyEvent", down, nil))
	p.must(p.call("Input.dispatchKeyEvent", values{"type": "keyUp", "key": key}, nil))
}

// Mouse sends an event of the mouse at a place in CSS pixels: mousePressed, mouseMoved, mouseReleased.
func (p *Page) Mouse(kind string, x, y float64) {
	p.t.Helper()
	v := values{"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
	if kind == "mouseMoved" {
		v["buttons"] = 1
	}
	p.must(p.call("Input.dispatchMouseEvent", v, nil))
}

// Click clicks at a place.
func (p *Page) Click(x, y float64) {
	p.t.Helper()
	p.Mouse("mousePressed", x, y)
	p.Mouse("mouseReleased", x, y)
}

// Wheel turns the wheel at a place, with Ctrl held or not.
func (p *Page) Wheel(x, y, by float64, ctrl bool) {
	p.t.Helper()
	v := values{"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by}
	if ctrl {
		v["modifiers"] = 2
	}
	p.must(p.call("Input.dispatchMouseEvent", v, nil))
}

// Screenshot is what is shown, as PNG.
func (p *Page) Screenshot() []byte {
	p.t.Helper()
	var out struct{ Data string }
	p.must(p.call("Page.captureScreenshot", values{"format": "png"}, &out))
	png, err := base64.StdEncoding.DecodeString(out.Data)
	p.must(err)
	return png
}

// Metrics are Chromium's own figures of the page's main thread, by name: ScriptDuration, TaskDuration, LayoutDuration and so on, in seconds
// of CPU time since it was first asked. What other programs do next to it is not in them.
func (p *Page) Metrics() map[string]float64 {
	p.t.Helper()
	p.must(p.call("Performance.enable", values{"timeDomain": "threadTicks"}, nil))
	var out struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	p.must(p.call("Performance.getMetrics", nil, &out))
	m := map[string]float64{}
	for _, x := range out.Metrics {
		m[x.Name] = x.Value
	}
	return m
}

// Node is one element as a screen reader is told of it.
type Node struct {
	Role, Name string
	Focusable  bool
}

// Accessible are the page's elements in the order in which a screen reader meets them, those that it is not told of left out.
func (p *Page) Accessible() []Node {
	p.t.Helper()
	var out struct {
		Nodes []struct {
			Ignored    bool
			Role, Name struct{ Value any }
			Properties []struct {
				Name  string
				Value struct{ Value any }
			}
		}
	}
	p.must(p.call("Accessibility.getFullAXTree", nil, &out))
	var list []Node
	for _, n := range out.Nodes {
		if n.Ignored {
			continue
		}
		x := Node{}
		x.Role, _ = n.Role.Value.(string)
		x.Name, _ = n.Name.Value.(string)
		for _, q := range n.Properties {
			if q.Name == "focusable" {
				x.Focusable, _ = q.Value.Value.(bool)
			}
		}
		list = append(list, x)
	}
	return list
}
