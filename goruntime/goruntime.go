// Package goruntime records Go programs: it maps code into a program that is about to begin, and redirects three functions
// of the Go runtime to it, so that every goroutine's changes of state go into the session's ring.
//
// program.go reads what a binary says of its runtime; layouts.go and reasons.go hold what each Go version looks like;
// beliefs.go holds that against the running program before anything is changed; launch_linux_amd64.go starts the program and
// changes it; remote_linux_amd64.go is its hand in the stopped program; table.go reads the table of goroutines; image.go is
// the code, which blob.c and the headers make. docs/design/go.md says why it is done like this.
//
// The package fails closed: of a program whose runtime is not known, or is not as it is believed to be, nothing is changed.
package goruntime

import (
	"embed"
	"errors"
)

//go:embed blob_linux_amd64.elf
var objects embed.FS

// ErrNoExec says that a process did not become the program that it was about to exec: it runs on as what it was.
var ErrNoExec = errors.New("it did not become the program")

// made tells of objects that `go run ./agent/build` compiled together.
type made struct {
	sources       []string          // the files that they were made from
	sourcesSHA256 string            // their hash when the objects were made
	objectsSHA256 map[string]string // of each object, by its path
}
