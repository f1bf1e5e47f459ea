package goruntime

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"sync"

	"github.com/hbtrace/hbtrace/segment"
)

// image is the code to be mapped. It runs at any address, and begins with a segment.GoConfig.
type image struct {
	code    []byte
	symbols map[string]uint64 // from its beginning
}

// loadImage reads the embedded code.
var loadImage = sync.OnceValues(func() (*image, error) {
	b, err := objects.ReadFile("blob_linux_amd64.elf")
	if err != nil {
		return nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	im := &image{symbols: map[string]uint64{}}
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if p.Vaddr != 0 || im.code != nil || p.Filesz != p.Memsz {
			return nil, errors.New("the code for Go programs is no single image at 0")
		}
		im.code = make([]byte, p.Filesz)
		if _, err := p.ReadAt(im.code, 0); err != nil {
			return nil, err
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	for _, s := range symbols {
		im.symbols[s.Name] = s.Value
	}
	for _, name := range []string{"hb_go", "hb_go_status", "hb_go_enter", "hb_go_exit", "hb_go_quit", "hb_go_signal", "hb_go_restorer"} {
		at, ok := im.symbols[name]
		if !ok || at >= uint64(len(im.code)) {
			return nil, fmt.Errorf("the code for Go programs has no %s", name)
		}
	}
	if im.symbols["hb_go"] != 0 || len(im.code) < segment.GoConfigBytes {
		return nil, errors.New("the code for Go programs does not begin with its configuration")
	}
	return im, nil
})
