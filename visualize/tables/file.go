// One Parquet file: rows collected into row groups, sorted, compressed with zstd, and renamed when all is complete.

package tables

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// groupRows is how many rows a row group has: some 10 MB of events before compression.
const groupRows = 1 << 16

// file is a table that is not published yet.
type file struct {
	temp, name string
	out        *os.File
}

func (f *file) abandon() {
	f.out.Close() // it is removed
	os.Remove(f.temp)
}

// writer takes rows of one table.
type writer[T any] struct {
	f    *file
	w    *parquet.GenericWriter[T]
	rows []T
	less func(a, b *T) int // nil: rows stay in the order they came in
}

// newWriter begins a table. With sorted, a column, rows of each row group are sorted by less.
func newWriter[T any](x *export, table, sorted string, less func(a, b *T) int) (*writer[T], error) {
	name := x.path(table)
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	out, err := os.CreateTemp(filepath.Dir(name), ".part-*")
	if err != nil {
		return nil, err
	}
	f := &file{out.Name(), name, out}
	x.left = append(x.left, f)
	options := []parquet.WriterOption{
		parquet.Compression(&parquet.Zstd), parquet.CreatedBy("hbtrace", x.src.Meta().Version, ""),
		parquet.PageBufferSize(64 << 10), parquet.DataPageStatistics(true),
	}
	if sorted != "" {
		options = append(options, parquet.SortingWriterConfig(parquet.SortingColumns(parquet.Ascending(sorted))))
	}
	return &writer[T]{f: f, w: parquet.NewGenericWriter[T](out, options...), less: less}, nil
}

func (w *writer[T]) add(row T) error {
	if w.rows = append(w.rows, row); len(w.rows) < groupRows {
		return nil
	}
	return w.flush()
}

// flush writes a row group.
func (w *writer[T]) flush() error {
	if w.less != nil {
		slices.SortStableFunc(w.rows, func(a, b T) int { return w.less(&a, &b) })
	}
	if _, err := w.w.Write(w.rows); err != nil {
		return fmt.Errorf("%s: %w", w.f.name, err)
	}
	w.rows = w.rows[:0]
	if err := w.w.Flush(); err != nil {
		return fmt.Errorf("%s: %w", w.f.name, err)
	}
	return nil
}

func (w *writer[T]) close() error {
	if len(w.rows) > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.rows = nil
	if err := w.w.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.f.name, err)
	}
	if err := w.f.out.Close(); err != nil {
		return err
	}
	return nil
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
