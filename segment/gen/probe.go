// probe.go asks the C compiler for what only it may say: sizes, offsets and the values of constants.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// facts are keyed "size struct", "offset struct.field", "bytes struct.field" and "const NAME".
type facts map[string]uint64

// probe compiles and runs a program that includes layout.h, found in dir.
func probe(h *header, dir string) (facts, error) {
	var c strings.Builder
	c.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"layout.h\"\n#define P(k, v) printf(\"%s %llu\\n\", k, (unsigned long long)(v))\nint main(void) {\n")
	for _, s := range h.structs {
		fmt.Fprintf(&c, "P(\"size|%[1]s\", sizeof(struct hb_%[1]s));\n", s.name)
		for _, f := range s.fields {
			fmt.Fprintf(&c, "P(\"offset|%[1]s.%[2]s\", offsetof(struct hb_%[1]s, %[2]s));\n", s.name, f.name)
			fmt.Fprintf(&c, "P(\"bytes|%[1]s.%[2]s\", sizeof(((struct hb_%[1]s *)0)->%[2]s));\n", s.name, f.name)
		}
	}
	for _, n := range h.consts {
		fmt.Fprintf(&c, "P(\"const|%[1]s\", %[1]s);\n", n)
	}
	c.WriteString("return 0; }\n")

	tmp, err := os.MkdirTemp("", "hblayout")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	src, bin := filepath.Join(tmp, "probe.c"), filepath.Join(tmp, "probe")
	if err := os.WriteFile(src, []byte(c.String()), 0o600); err != nil {
		return nil, err
	}
	var errs bytes.Buffer
	cc := exec.Command("gcc", "-std=c11", "-Wall", "-Werror", "-I", dir, "-o", bin, src)
	cc.Stderr = &errs
	if err := cc.Run(); err != nil {
		return nil, fmt.Errorf("compile the layout probe: %w\n%s", err, errs.String())
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		return nil, fmt.Errorf("run the layout probe: %w", err)
	}
	got := facts{}
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		k, v, _ := strings.Cut(sc.Text(), " ")
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("layout probe printed %q: %w", sc.Text(), err)
		}
		got[k] = n
	}
	return got, nil
}
