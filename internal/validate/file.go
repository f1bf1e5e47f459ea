package validate

// file.go opens what is to be checked.

import (
	"fmt"

	"github.com/hbtrace/hbtrace/internal/agree"
	"github.com/hbtrace/hbtrace/tracefile"
)

// File opens a .hbt file, checks its recording, and that the outputs that are made of it agree.
func File(path string) error {
	r, err := tracefile.Open(path)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	defer r.Close()
	if err := Source(r); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := agree.Source(r); err != nil {
		return fmt.Errorf("%s: outputs differ:\n%w", path, err)
	}
	return nil
}
