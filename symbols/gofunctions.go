package symbols

import (
	"errors"
	"fmt"
)

// ErrNotGo says that a file has no table of Go functions.
var ErrNotGo = errors.New("not a Go program")

// GoFunctions calls f for every function of a Go program, by its own table, in the order of addresses: [lo, hi) are ELF
// virtual addresses. It works on stripped programs. The error is ErrNotGo for a file without such a table.
func GoFunctions(path string, f func(name string, lo, hi uint64)) error {
	file, err := openRegular(path)
	if err != nil {
		return err
	}
	im, err := newImage(path, file)
	if err != nil {
		return err
	}
	defer im.close()
	t, err := openGoTable(im)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if t == nil {
		return fmt.Errorf("%s: %w", path, ErrNotGo)
	}
	for i := range t.n {
		fn, ok := t.find(t.text + t.entry(i))
		if !ok {
			continue
		}
		nameOff, _ := t.u32(fn.b, 4)
		f(t.name(nameOff), t.text+fn.entry, t.text+fn.end)
	}
	return nil
}
