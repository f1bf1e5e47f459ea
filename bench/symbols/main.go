// Symbols measures how long names for many addresses of a large program take, and how much memory.
//
//	go run ./bench/symbols -dir /tmp/big                 generate the program there (minutes) and measure
//	/usr/bin/time -v symbols -program /tmp/big/program   measure alone
//
// The addresses are distinct and spread evenly over the program's text, so that every unit has to be decoded: the worst
// case. A recording touches a small part of its program.
package main

import (
	"debug/elf"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hbtrace/hbtrace/symbols"
	"github.com/hbtrace/hbtrace/trace"
)

func main() {
	dir := flag.String("dir", "", "generate a program in this directory")
	program := flag.String("program", "", "measure this program")
	kinds := flag.Int("kinds", 4, "kinds of units")
	copies := flag.Int("copies", 12, "copies of each kind")
	size := flag.Int("size", 24, "instantiations in a unit")
	n := flag.Int("n", 100_000, "addresses")
	cache := flag.String("cache", "", "keep answers in this directory; run twice")
	flag.Parse()
	if err := measure(*dir, *program, *kinds, *copies, *size, *n, *cache); err != nil {
		fmt.Fprintln(os.Stderr, "symbols:", err)
		os.Exit(1)
	}
}

func measure(dir, program string, kinds, copies, size, n int, cache string) (err error) {
	if program == "" {
		if dir == "" {
			return fmt.Errorf("give -dir or -program")
		}
		if program, err = generate(dir, kinds, copies, size); err != nil {
			return err
		}
	}
	if program, err = filepath.Abs(program); err != nil { // as modules have it
		return err
	}
	f, err := elf.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	debug := uint64(0)
	for _, s := range f.Sections {
		if strings.HasPrefix(s.Name, ".debug_") {
			debug += s.Size
		}
	}
	text := f.Section(".text")
	if text == nil {
		return fmt.Errorf("%s has no .text", program)
	}
	addrs := make([]uint64, n)
	for i := range addrs {
		addrs[i] = text.Addr + uint64(i)*text.Size/uint64(n)
	}
	begun := time.Now()
	r := symbols.NewResolver(symbols.Options{Cache: cache})
	defer r.Close()
	if err := r.Add(trace.Module{ID: 1, Path: program}); err != nil {
		return err
	}
	out := r.Resolve(1, addrs)
	took := time.Since(begun)
	known, inlined, frames := 0, 0, 0
	for _, fs := range out {
		frames += len(fs)
		if len(fs) > 0 {
			known++
		}
		if len(fs) > 1 {
			inlined++
		}
	}
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return err
	}
	cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	fmt.Printf("%s: %d MiB of DWARF, %d addresses: %.2f s (%.2f s of CPU), %d MiB at most, %.1f %% named, %.1f %% with inlined calls, %.2f frames each\n",
		program, debug>>20, n, took.Seconds(), cpu.Seconds(), u.Maxrss>>10, 100*float64(known)/float64(n), 100*float64(inlined)/float64(n), float64(frames)/float64(n))
	for _, note := range r.Notes() {
		fmt.Println(" ", note)
	}
	return nil
}
