// Package tables writes recordings as Parquet tables for SQL engines and data frames: which lock cost a fleet most, what
// changed between two builds, which host differs. Every table of every recording is one file,
// DIR/TABLE/RECORDING.parquet, so that an engine reads DIR/TABLE/*.parquet as one table.
//
// Events go through once. Memory holds what is distinct (stacks, functions, edges) and one row group of events and waits.
// What weighs, who waited for whom, and what a thread did are the judgements of the analysis packages: sums over these
// tables are the numbers of hbtrace report.
package tables

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hbtrace/hbtrace/analysis/blame"
	"github.com/hbtrace/hbtrace/analysis/edges"
	"github.com/hbtrace/hbtrace/analysis/feed"
	"github.com/hbtrace/hbtrace/analysis/frames"
	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
)

// Names are the tables, in the order in which they are written: recordings last, so that a recording is listed only when
// its other tables are complete.
var Names = []string{
	"events", "waits", "profile", "edges", "chains", "stacks", "frames", "functions", "threads", "processes", "recordings",
}

// ID identifies a recording: the same for every copy of it, and different for any other.
func ID(src trace.Source) string {
	m, s := src.Meta(), src.Stats()
	h := sha256.New()
	number := func(x int64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], uint64(x))
		h.Write(b[:])
	}
	text := func(t string) {
		number(int64(len(t)))
		h.Write([]byte(t))
	}
	text(m.Host)
	for _, x := range []int64{
		m.Started.UnixNano(), int64(m.StartNs), int64(m.EndNs), m.BoottimeOffset, int64(s.Records), int64(s.Events), int64(src.Nodes()),
	} {
		number(x)
	}
	for _, arg := range m.Command {
		text(arg)
	}
	for _, p := range src.Processes() {
		number(int64(p.PID))
		number(int64(p.Start))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// export is one recording on its way into tables.
type export struct {
	src     trace.Source
	dir, id string
	zero    int64 // wall clock, ns since 1970, of the recording's clock at 0
	stacks  *stacks
	proc    map[trace.ThreadID]trace.ProcID
	locking *weigh.Locking
	left    []*file
}

// Write writes src's tables under dir, which is made where it is missing. Tables of the same recording are replaced.
// Errors are those of src and of the file system; then nothing new is left behind.
func Write(dir string, src trace.Source) (err error) {
	m := src.Meta()
	tab := frames.New(src)
	x := &export{
		src: src, dir: dir, id: ID(src), stacks: newStacks(src, tab), proc: map[trace.ThreadID]trace.ProcID{},
		locking: weigh.NewLocking(m, tab),
	}
	x.zero = -int64(m.StartNs)
	if !m.Started.IsZero() {
		x.zero += m.Started.UnixNano()
	}
	for _, t := range src.Threads() {
		x.proc[t.ID] = t.Proc
	}
	defer func() {
		for _, f := range x.left {
			f.abandon()
		}
		if err != nil {
			err = fmt.Errorf("tables: %w", err)
		}
	}()
	weights := weigh.NewCollector(src, weigh.Options{
		By: weigh.ByThread | weigh.ByProcess | weigh.ByObject | weigh.ByKind, MaxRows: maxProfileRows,
		Fewer: []weigh.By{weigh.ByProcess | weigh.ByObject | weigh.ByKind, weigh.ByProcess | weigh.ByKind, weigh.ByKind},
	})
	join := edges.New()
	who := blame.New(src, frames.New(src), blame.Options{Whole: true})
	events, err := newEvents(x)
	if err != nil {
		return err
	}
	err = feed.Batches(src, weights.AddBatch, events.addBatch, func(batch []trace.Event) error {
		for i := range batch {
			join.Add(&batch[i])
			who.Add(&batch[i])
		}
		return nil
	})
	if err != nil {
		return err
	}
	// chains are followed while what else is known is written; who has names of its own
	finished := make(chan *blame.Result, 1)
	go func() { finished <- who.Finish() }()
	err = events.close()
	if err == nil {
		err = x.profile(weights.Table())
	}
	chains := <-finished // also where writing failed: src belongs to the caller again afterwards
	if err != nil {
		return err
	}
	if err := x.edges(join.Finish(), chains); err != nil {
		return err
	}
	if err := x.chains(chains); err != nil {
		return err
	}
	if err := x.stacks.write(x); err != nil {
		return err
	}
	if err := x.who(); err != nil {
		return err
	}
	return x.publish()
}

// maxProfileRows bounds the profile's memory; with more rows, threads and then objects are not kept apart: column 0.
const maxProfileRows = 300_000

// at converts a time of the recording into wall clock.
func (x *export) at(t trace.Ns) int64 { return x.zero + int64(t) }

// ended is at for ends; nil where the end is not known.
func (x *export) ended(t trace.Ns) *int64 {
	if t == 0 {
		return nil
	}
	ns := x.at(t)
	return &ns
}

// publish gives all files their names, the recording's own last.
func (x *export) publish() error {
	for len(x.left) > 0 {
		f := x.left[0]
		if err := os.Rename(f.temp, f.name); err != nil {
			return err
		}
		x.left = x.left[1:]
	}
	return nil
}

// path is where a table of this recording lies.
func (x *export) path(table string) string { return filepath.Join(x.dir, table, x.id+".parquet") }
