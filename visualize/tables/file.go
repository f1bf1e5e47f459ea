// One Parquet file: rows collected into row groups, sorted, compressed with zstd, and renamed when all is complete.

package tables

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// groupRows is how many rows a row group has: some 10 MB of events before compression.
const groupRows = 1 << 16

// file is a table that is not published yet.
type file struct {
	temp, name string
	out        *os.File
	stop       func() // ends what writes out
}

func (f *file) abandon() {
	f.stop()
	f.out.Close() // it is removed
	os.Remove(f.temp)
}

// writer takes rows of one table. Row groups are sorted, encoded and compressed by a goroutine of the writer, while the
// next one is filled.
type writer[T any] struct {
	f    *file
	w    *parquet.GenericWriter[T]
	rows []T
	time func(*T) int64 // rows of a group are sorted by it; nil: they stay in the order they came in
	full chan []T       // to the goroutine
	free chan []T       // from it: an emptied group
	done chan struct{}  // closed when the goroutine has ended
	err  error          // the goroutine's, when done is closed
}

// newWriter begins a table. With sorted, a column, rows of each row group are sorted by time, which is that column.
func newWriter[T any](x *export, table, sorted string, time func(*T) int64) (*writer[T], error) {
	name := x.path(table)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	out, err := os.CreateTemp(filepath.Dir(name), ".part-*")
	if err != nil {
		return nil, err
	}
	f := &file{temp: out.Name(), name: name, out: out}
	x.left = append(x.left, f)
	options := []parquet.WriterOption{
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), parquet.CreatedBy("hbtrace", x.src.Meta().Version, ""),
		parquet.PageBufferSize(64 << 10), parquet.DataPageStatistics(true),
	}
	if sorted != "" {
		options = append(options, parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending(sorted))))
	}
	w := &writer[T]{
		f: f, w: parquet.NewGenericWriter[T](out, options...), time: time,
		full: make(chan []T), free: make(chan []T, 2), done: make(chan struct{}),
	}
	w.free <- nil // the second group; both get their memory when they are filled
	f.stop = sync.OnceFunc(func() { close(w.full); <-w.done })
	go w.encode()
	return w, nil
}

func (w *writer[T]) add(row T) error {
	if w.rows = append(w.rows, row); len(w.rows) < groupRows {
		return nil
	}
	return w.flush()
}

// flush hands the row group over.
func (w *writer[T]) flush() error {
	select {
	case w.full <- w.rows:
		w.rows = (<-w.free)[:0]
		return nil
	case <-w.done:
		return w.err
	}
}

// encode writes row groups until there are no more, or one fails.
func (w *writer[T]) encode() {
	defer close(w.done)
	var spare []T
	var order []place
	for rows := range w.full {
		if w.time != nil {
			rows, spare = sorted(rows, spare, &order, w.time)
		}
		_, err := w.w.Write(rows)
		if err == nil {
			err = w.w.Flush()
		}
		if err != nil {
			w.err = fmt.Errorf("%s: %w", w.f.name, err)
			return
		}
		w.free <- rows
	}
}

// place is where a row stands, and what it is sorted by: a row has some 150 bytes, and is moved once.
type place struct {
	time int64
	row  int32
}

// sorted returns rows in the order of time, equal ones in the order they had, and the slice that is not used now.
func sorted[T any](rows, spare []T, order *[]place, time func(*T) int64) (ordered, unused []T) {
	places := (*order)[:0]
	for i := range rows {
		places = append(places, place{time(&rows[i]), int32(i)})
	}
	*order = places
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.row, b.row)) })
	spare = spare[:0]
	for _, p := range places {
		spare = append(spare, rows[p.row])
	}
	return spare, rows
}

func (w *writer[T]) close() error {
	if len(w.rows) > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.f.stop()
	if w.err != nil {
		return w.err
	}
	w.rows = nil
	if err := w.w.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.f.name, err)
	}
	return w.f.out.Close()
}

// writeAll writes a table of rows that are known at once.
func writeAll[T any](x *export, table string, rows func(yield func(T) error) error) error {
	w, err := newWriter[T](x, table, "", nil)
	if err != nil {
		return err
	}
	if err := rows(w.add); err != nil {
		return err
	}
	return w.close()
}
