package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/visualize/pprof"
)

// TestEndingOf: what most look at first is made first, and the rest as far as it can be waited for.
func TestEndingOf(t *testing.T) {
	all := ending{profile: true, tables: true, perfetto: true, chains: true}
	for _, c := range []struct {
		events   uint64
		patience time.Duration
		quiet    bool
		want     ending
	}{
		{0, patience, false, all},
		{manyEvents, patience, false, all},
		{30_000_000, patience, false, all},
		{40_000_000, patience, false, ending{profile: true, tables: true, perfetto: true}},
		{100_000_000, patience, false, ending{profile: true, tables: true}}, // a GiB
		{200_000_000, patience, false, ending{}},
		{100_000_000, 20 * time.Minute, false, all}, // hours were recorded
		{10_000_000, patience, true, ending{profile: true, perfetto: true}},
		{60_000_000, patience, true, ending{profile: true}},
		{200_000_000, patience, true, ending{}},
		{1 << 63, patience, false, ending{}},
	} {
		if got := endingOf(c.events, c.patience, c.quiet); got != c.want {
			t.Errorf("%d events, %v, quiet %v: %+v, want %+v", c.events, c.patience, c.quiet, got, c.want)
		}
	}
}

// TestLeftToBeAskedFor: what would take too long is not made, what an earlier run left in its place is gone, and the commands that are
// told make it.
func TestLeftToBeAskedFor(t *testing.T) {
	const events = 800 // at least what there is in the recording
	for _, c := range []struct {
		name     string
		patience time.Duration
		quiet    bool
		missing  []string // commands
	}{
		{"all", 0, false, nil},
		{"tables", 3 * events * tablesTake / 2, false, []string{"export --perfetto"}},
		{"nothing", 1, false, []string{"report", "export --pprof", "export --perfetto"}},
		{"quiet", 1, true, []string{"export --pprof", "export --perfetto"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			prefix := filepath.Join(dir, "it's") // to be quoted
			if err := writeRecording(prefix + suffixTrace); err != nil {
				t.Fatal(err)
			}
			for _, suffix := range []string{suffixPprof, suffixPerfetto} {
				if err := os.WriteFile(prefix+suffix, []byte("of an earlier run"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var stderr bytes.Buffer
			f := runFlags{quiet: c.quiet, patience: c.patience}
			if err := f.finish(&outputs{prefix: prefix}, newProgress(&stderr, true), &stderr); err != nil {
				t.Fatal(err)
			}
			said := stderr.String()
			if got, want := strings.Contains(said, "\nCPU, by function\n"), !c.quiet && c.name != "nothing"; got != want {
				t.Errorf("a summary: %v, want %v\n%s", got, want, said)
			}
			commands := regexp.MustCompile(`(?m)^  hbtrace (\w+) .*$`).FindAllStringSubmatch(said, -1)
			if len(c.missing) == 0 {
				commands = nil // the summary's own
			}
			if len(commands) != len(c.missing) {
				t.Fatalf("%d commands, want %v\n%s", len(commands), c.missing, said)
			}
			for i, command := range commands {
				for _, word := range strings.Fields(c.missing[i]) {
					if !strings.Contains(command[0], " "+word) {
						t.Errorf("command %d is %q, want %s", i, command[0], c.missing[i])
					}
				}
			}
			for _, suffix := range []string{suffixPprof, suffixPerfetto} {
				_, err := os.Stat(prefix + suffix)
				if is, want := err == nil, !strings.Contains(strings.Join(c.missing, " "), exportOf[suffix]); is != want {
					t.Errorf("%s is there: %v, want %v", suffix, is, want)
				}
			}
			for _, command := range commands {
				shell := exec.Command("sh", "-c", strings.Replace(command[0], "hbtrace", hbtrace(t), 1))
				if out, err := shell.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", command[0], err, out)
				}
			}
			src, err := tracefile.Open(prefix + suffixTrace)
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			var want bytes.Buffer
			if err := pprof.Write(&want, src, pprof.Options{}); err != nil {
				t.Fatal(err)
			}
			// However it came to be, and next to whatever else.
			if got, err := os.ReadFile(prefix + suffixPprof); err != nil || !bytes.Equal(got, want.Bytes()) {
				t.Errorf("the profile has %d bytes (%v), want the same %d as of a reading of its own", len(got), err, want.Len())
			}
			if st, err := os.Stat(prefix + suffixPerfetto); err != nil || st.Size() < 1000 {
				t.Errorf("the timeline: %v, %v", st, err)
			}
		})
	}
}

var exportOf = map[string]string{suffixPprof: "--pprof", suffixPerfetto: "--perfetto"}
