// Names of the kernel's functions, from /proc/kallsyms.

package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// Symbols names addresses: the function that each lies in, "" where none is known. It reads all of /proc/kallsyms, some
// 10 MB, once.
func Symbols(addrs []uint64) ([]string, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, fmt.Errorf("names of kernel functions: %w", err)
	}
	defer f.Close()
	// For each address the nearest symbol at or below it, found in one pass without keeping the rest.
	order := make([]int, len(addrs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case addrs[a] < addrs[b]:
			return -1
		case addrs[a] > addrs[b]:
			return 1
		}
		return a - b
	})
	sorted := make([]uint64, len(addrs))
	for i, o := range order {
		sorted[i] = addrs[o]
	}
	type symbol struct {
		at   uint64
		name string
	}
	var syms []symbol
	hidden := true
	in := bufio.NewScanner(f)
	in.Buffer(make([]byte, 64<<10), 64<<10)
	for in.Scan() {
		at, rest, ok := bytes.Cut(in.Bytes(), []byte(" "))
		if !ok || len(rest) < 3 || rest[0] != 't' && rest[0] != 'T' && rest[0] != 'w' && rest[0] != 'W' {
			continue
		}
		v, err := strconv.ParseUint(string(at), 16, 64)
		if err != nil || v == 0 {
			continue
		}
		hidden = false
		name, _, _ := bytes.Cut(rest[2:], []byte("\t")) // a module's name follows
		syms = append(syms, symbol{v, string(name)})
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("names of kernel functions: %w", err)
	}
	if hidden {
		return nil, errors.New("names of kernel functions: /proc/kallsyms shows no addresses to this user")
	}
	slices.SortStableFunc(syms, func(a, b symbol) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	names := make([]string, len(addrs))
	at := 0
	for i, a := range sorted {
		for at < len(syms) && syms[at].at <= a {
			at++
		}
		if at > 0 {
			names[order[i]] = syms[at-1].name
		}
	}
	return names, nil
}
