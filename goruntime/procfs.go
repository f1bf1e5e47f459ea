package goruntime

import (
	"bytes"
	"strconv"
)

// leadingNumber is the decimal number that b begins with.
func leadingNumber(b []byte) (n uint64) {
	for _, c := range b {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// signalSet is a set of signals in a /proc/PID/status: bit n-1 is signal n.
func signalSet(status []byte, name string) (uint64, bool) {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			set, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 16, 64)
			return set, err == nil
		}
	}
	return 0, false
}
