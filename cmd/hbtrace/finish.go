// What a run makes of its recording when the program has ended: the other files, and the summary.

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/analysis/stored"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/tracefile"
	"github.com/hbtrace/hbtrace/visualize/perfetto"
	"github.com/hbtrace/hbtrace/visualize/pprof"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// patience is how long the outputs of a run may take after the program's end; or an eighth of the recorded time, where that is more.
// Outputs estimated to take longer are skipped. A recording of a GiB, some 100 million events, still gets its summary: with it every
// report takes a second or two, and without it a minute.
const (
	patience      = 90 * time.Second
	patienceShare = 8
)

// What things take for an event, on two processors that have little else to do (go run ./bench/export). The same
// recording gets the same files on every machine: how long they take on this one is not measured.
const (
	tablesTake   = 800 * time.Nanosecond // summary and profile, by one reading
	profileTakes = 500 * time.Nanosecond // the profile alone
	perfettoTake = 1200 * time.Nanosecond
	chainsTake   = 500 * time.Nanosecond // added to the tables: what waits led to
)

// ending is what a run makes of its recording.
type ending struct{ profile, tables, perfetto, chains bool }

// endingOf decides on that: what most look at first goes first.
func endingOf(events uint64, patience time.Duration, quiet bool) ending {
	left := float64(patience)
	affordable := func(each time.Duration) bool {
		ns := float64(events) * float64(each)
		if ns > left {
			return false
		}
		left -= ns
		return true
	}
	var e ending
	if quiet {
		e.profile = affordable(profileTakes)
	} else {
		e.tables = affordable(tablesTake)
		e.profile = e.tables
	}
	e.perfetto = e.profile && affordable(perfettoTake)
	e.chains = e.tables && affordable(chainsTake)
	return e
}

// finish makes the other files of the recording and tells what is in it. The summary comes even when a file could
// not be written.
func (f *runFlags) finish(out *outputs, line *progress, stderr io.Writer) error {
	src, err := openRecording(out.recording())
	if err != nil {
		return err
	}
	if err := out.settle(src.Processes()); err != nil {
		return errors.Join(err, src.done())
	}
	src.stays = true
	recording, m := out.recording(), src.Meta()
	does := endingOf(src.Stats().Events, cmp.Or(f.patience, max(patience, time.Duration(m.EndNs-m.StartNs)/patienceShare)), f.quiet)

	var facts *report.Facts
	var weights *weigh.Collector
	if does.tables && len(src.Processes()) > 0 {
		line.stage("summing up")
		src.shows(line, "summing up")
		weights = pprof.Weights(src, pprof.Options{})
		var e error
		if facts, e = report.CollectWith(src, does.chains, weights); e != nil {
			err, weights = e, nil
		}
	}
	files := []string{recording}
	var left []string // commands that make what is left out
	for _, export := range []struct {
		does         bool
		suffix, flag string
		write        func(io.Writer) error
	}{
		{does.profile, suffixPprof, "--pprof", func(w io.Writer) error {
			if weights == nil {
				return pprof.Write(w, src, pprof.Options{})
			}
			c := weights
			weights = nil // it is large, and of no more use
			return pprof.WriteWeighed(w, src, c, pprof.Options{})
		}},
		{does.perfetto, suffixPerfetto, "--perfetto", func(w io.Writer) error { return perfetto.Write(w, src, perfetto.Options{}) }},
	} {
		path := out.prefix + export.suffix
		if !export.does {
			left = append(left, fmt.Sprintf("hbtrace export %s %s %s", shellWord(recording), export.flag, shellWord(path)))
			err = errors.Join(err, removeFile(path))
			continue
		}
		line.stage("writing %s", path)
		src.shows(line, "writing "+path)
		if e := writeFile(path, nil, export.write); e != nil {
			err = errors.Join(err, e)
			continue
		}
		files = append(files, path)
	}
	line.clear()
	if !f.quiet {
		if !does.tables {
			left = append([]string{"hbtrace report " + shellWord(recording)}, left...)
		}
		err = errors.Join(err, f.tell(src, facts, files, stderr))
	}
	if len(left) > 0 {
		fmt.Fprintf(stderr, "hbtrace: skipped, because %d events take long; create them with:\n", src.Stats().Events)
		for _, command := range left {
			fmt.Fprintf(stderr, "  %s\n", command)
		}
	}
	return errors.Join(err, src.done())
}

// removeFile removes what an earlier run left where this one writes nothing: it would be taken for this one's.
func removeFile(path string) error {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() {
		return nil // nothing that is there is of a recording
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("removing %s, which is of an earlier recording: %w", path, bare(err))
	}
	return nil
}

// tell writes the summary, and stores what it is made of. The files are written: a summary that nobody can be shown (a reader that went
// away, a full disk behind 2>) is no reason to keep the program's status back, and what would be said of it could not be shown
// either. Where nothing was recorded, or no event was read, there is nothing to sum up: the reasons matter, in full.
func (f *runFlags) tell(src *recording, facts *report.Facts, files []string, w io.Writer) error {
	if facts == nil {
		for _, note := range src.Stats().Notes {
			fmt.Fprintf(w, "hbtrace: %s\n", note)
		}
		return nil
	}
	isTerminal, columns := terminalOf(w)
	o := report.Options{Width: columns, Color: coloured(isTerminal), Files: files, Recording: shellWord(files[0]), Verbose: f.verbose}
	var text bytes.Buffer
	err := facts.Write(&text, report.ViewSummary, o)
	if f.verbose {
		err = errors.Join(err, facts.Write(&text, report.ViewStorage, o))
	}
	_, _ = w.Write(text.Bytes())
	if src.Stats().Complete && src.damage == nil && src.Stats().Events >= manyEvents {
		// Nobody misses it where it cannot be stored: reports read the events then.
		_ = tracefile.AppendSummary(files[0], stored.Encode(parts(facts, files)...))
	}
	return err
}

// manyEvents take long enough to read for what is found in them to be kept.
const manyEvents = 250_000

// partShare is how small a part of the recording each thing that is kept next to the facts must be, before it is compressed.
const partShare = 8

// parts is what is kept of the facts and of the files that were written, the recording first.
func parts(facts *report.Facts, files []string) []stored.Part {
	all := facts.Parts()
	for _, f := range files {
		if !strings.HasSuffix(f, suffixPprof) {
			continue
		}
		if profile, err := os.ReadFile(f); err == nil {
			all = append(all, pprof.Part(profile))
		}
	}
	var most int64
	if st, err := os.Stat(files[0]); err == nil {
		most = st.Size() / partShare
	}
	return slices.DeleteFunc(all, func(p stored.Part) bool { return p.Number != stored.Facts && int64(len(p.Bytes)) > most })
}
