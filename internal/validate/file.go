package validate

// file.go opens what is to be checked.

import (
	"fmt"

	"github.com/hbtrace/hbtrace/tracefile"
)

// File opens a .hbt file and checks its recording.
func File(path string) error {
	r, err := tracefile.Open(path)
	if err != nil {
		return fmt.Errorf("validate: %w", err)
	}
	defer r.Close()
	if err := Source(r); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
