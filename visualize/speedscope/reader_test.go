package speedscope

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/internal/chromium"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// speedscopeVersion is the version of npm's package speedscope that reads our files here.
const speedscopeVersion = "1.25.0"

// refused is what it says of a file that it cannot read.
const refused = "Something went wrong"

// fetched puts speedscope, as npm has it, into a folder of the test's and gives its page. It skips the test where that cannot be had.
func fetched(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"npm", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("no %s: speedscope itself comes from npm", tool)
		}
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", "speedscope@"+speedscopeVersion)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("npm's registry does not give speedscope %s: %v %s", speedscopeVersion, err, out)
	}
	if out, err := exec.Command("tar", "-C", dir, "-xzf", filepath.Join(dir, "speedscope-"+speedscopeVersion+".tgz")).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	return filepath.Join(dir, "package", "dist", "release", "index.html")
}

// TestRealReader has speedscope itself, in a real browser, open what is written: as its command line does, by a script that hands the file over.
func TestRealReader(t *testing.T) {
	chromium.Path(t)
	page := fetched(t)
	odd := tracetest.New()
	th := odd.AddThread(trace.Thread{Proc: odd.AddProcess(trace.Process{PID: 1}), TID: 1, Name: "</script>\n\"\xff"})
	odd.Sample(th, 10_000_000, 4_000_000, "main", "a<b>\"c\"\n", "\xff\xfe")
	b := chromium.Start(t)
	open := func(name string, file []byte) (title, text string) {
		script := filepath.Join(t.TempDir(), "profile.js")
		hand := `speedscope.loadFileFromBase64("hbtrace.speedscope.json", "` + base64.StdEncoding.EncodeToString(file) + `")`
		if err := os.WriteFile(script, []byte(hand), 0o600); err != nil {
			t.Fatal(err)
		}
		p := b.Open(t, (&url.URL{Scheme: "file", Path: page, Fragment: "localProfilePath=" + script}).String(), 1200, 800, 1)
		defer p.Close()
		p.Await(`document.body.innerText.includes("Time Order") || document.body.innerText.includes(` + "`" + refused + "`" + `)`)
		p.Eval("document.title", &title)
		p.Eval("document.body.innerText", &text)
		if bad := p.Problems(); len(bad) > 0 && !strings.Contains(text, refused) {
			t.Errorf("%s: %s", name, strings.Join(bad, "\n"))
		}
		return title, text
	}
	for _, tt := range []struct {
		name, title string
		src         trace.Source
	}{{"demo", "./demo --fast - speedscope", synthetic.Demo()}, {"odd names", "./app - speedscope", odd.Source()}} {
		var w bytes.Buffer
		if err := Write(&w, tt.src); err != nil {
			t.Fatal(err)
		}
		title, text := open(tt.name, w.Bytes())
		if title != tt.title || !strings.Contains(text, "CPU time (1/6)") || !strings.Contains(text, "Left Heavy") {
			t.Errorf("%s: speedscope calls it %q and says: %s", tt.name, title, text)
		}
		if _, text := open("half of "+tt.name, w.Bytes()[:w.Len()/2]); !strings.Contains(text, refused) {
			t.Errorf("half of %s is not refused, so the test tests nothing; speedscope says: %s", tt.name, text)
		}
	}
}
