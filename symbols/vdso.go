package symbols

// This file owns access to the vDSO, which has no file: this process' own image stands for it.

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"strings"
	"sync"
)

const atSysinfoEhdr = 33 // AT_SYSINFO_EHDR of <linux/auxvec.h>: address of the vDSO's ELF header

var ownVDSO = sync.OnceValues(readVDSO)

// openVDSO returns the bytes of this process' vDSO.
func openVDSO() (ReaderAtCloser, error) {
	b, err := ownVDSO()
	if err != nil {
		return nil, fmt.Errorf("reading the vDSO: %w", err)
	}
	return nopCloser{bytes.NewReader(b)}, nil
}

type nopCloser struct{ io.ReaderAt }

func (nopCloser) Close() error { return nil }

func readVDSO() ([]byte, error) {
	auxv, err := os.ReadFile("/proc/self/auxv")
	if err != nil {
		return nil, err
	}
	word := bits.UintSize / 8
	native := func(b []byte) uint64 {
		if word == 8 {
			return binary.NativeEndian.Uint64(b)
		}
		return uint64(binary.NativeEndian.Uint32(b))
	}
	var base uint64
	for ; len(auxv) >= 2*word; auxv = auxv[2*word:] {
		if native(auxv) == atSysinfoEhdr {
			base = native(auxv[word:])
			break
		}
	}
	if base == 0 {
		return nil, errors.New("this kernel gave none")
	}
	size, err := mappingSize(base)
	if err != nil {
		return nil, err
	}
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	b := make([]byte, size)
	if _, err := mem.ReadAt(b, int64(base)); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(b, []byte(elf.ELFMAG)) {
		return nil, errors.New("not an ELF image")
	}
	return b, nil
}

// mappingSize returns the size of this process' mapping that starts at base.
func mappingSize(base uint64) (uint64, error) {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	sc := bufio.NewScanner(maps)
	for sc.Scan() {
		var lo, hi uint64
		if n, _ := fmt.Sscanf(strings.Replace(sc.Text(), "-", " ", 1), "%x %x", &lo, &hi); n == 2 && lo == base && hi-lo <= 1<<20 {
			return hi - lo, nil
		}
	}
	return 0, fmt.Errorf("no mapping at %#x", base)
}
