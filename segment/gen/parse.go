// parse.go reads the declarations of segment/layout.h: its structs with their fields, its enums and its
// numeric #defines. It knows the few forms that the file uses and fails on any other, so that nothing new
// goes unnoticed. Values, sizes and offsets are not computed here: the C compiler says them (probe.go).
package main

import (
	"fmt"
	"regexp"
	"strings"
)

type field struct {
	name   string
	ctype  string // "uint32_t", "struct hb_rec"
	count  string // array length as written; "" = no array
	atomic bool
}

type structDecl struct {
	name   string // without "hb_"
	fields []field
}

type header struct {
	structs []structDecl
	consts  []string // names of #defines and enumerators, in file order
}

var (
	reBlockComment = regexp.MustCompile(`(?s)/\*.*?\*/`)
	reLineComment  = regexp.MustCompile(`//[^\n]*`)
	reDefine       = regexp.MustCompile(`(?m)^#define[ \t]+(HB_\w+)[ \t]+\S`)
	reDirective    = regexp.MustCompile(`(?m)^#.*$`)
	reEnum         = regexp.MustCompile(`^enum\s*\w*\s*\{([^}]*)\}$`)
	reStruct       = regexp.MustCompile(`^struct\s+hb_(\w+)\s*\{([^}]*)\}$`)
	reDeclarator   = regexp.MustCompile(`^(\w+)(?:\[(\w+)\])?$`)
	reFieldType    = regexp.MustCompile(`^(_Alignas\(\d+\)\s+)?(_Atomic\s+)?(struct\s+hb_\w+|u?int\d+_t)\s+(.*)$`)
)

// parse takes the text of layout.h.
func parse(src string) (*header, error) {
	src = reBlockComment.ReplaceAllString(src, " ")
	src = reLineComment.ReplaceAllString(src, "")
	h := &header{}
	for _, m := range reDefine.FindAllStringSubmatch(src, -1) {
		h.consts = append(h.consts, m[1])
	}
	src = reDirective.ReplaceAllString(src, "")
	for _, decl := range splitTopLevel(src) {
		if m := reEnum.FindStringSubmatch(decl); m != nil {
			for _, e := range strings.Split(m[1], ",") {
				if name, _, _ := strings.Cut(e, "="); strings.TrimSpace(name) != "" {
					h.consts = append(h.consts, strings.TrimSpace(name))
				}
			}
			continue
		}
		m := reStruct.FindStringSubmatch(decl)
		if m == nil {
			return nil, fmt.Errorf("declaration of an unknown form: %q", decl)
		}
		s := structDecl{name: m[1]}
		for _, line := range strings.Split(m[2], ";") {
			line = strings.Join(strings.Fields(line), " ")
			if line == "" {
				continue
			}
			fs, err := parseFields(line)
			if err != nil {
				return nil, fmt.Errorf("struct hb_%s: %w", s.name, err)
			}
			s.fields = append(s.fields, fs...)
		}
		h.structs = append(h.structs, s)
	}
	return h, nil
}

// splitTopLevel cuts at semicolons outside braces.
func splitTopLevel(src string) []string {
	var out []string
	depth, start := 0, 0
	for i, c := range src {
		switch c {
		case '{':
			depth++
		case '}':
			depth--
		case ';':
			if depth == 0 {
				if d := strings.TrimSpace(src[start:i]); d != "" && !strings.HasPrefix(d, "_Static_assert") {
					out = append(out, d)
				}
				start = i + 1
			}
		}
	}
	if rest := strings.TrimSpace(src[start:]); rest != "" {
		out = append(out, rest)
	}
	return out
}

func parseFields(line string) ([]field, error) {
	m := reFieldType.FindStringSubmatch(line)
	if m == nil {
		return nil, fmt.Errorf("field of an unknown form: %q", line)
	}
	var fs []field
	for _, d := range strings.Split(m[4], ",") {
		dm := reDeclarator.FindStringSubmatch(strings.TrimSpace(d))
		if dm == nil {
			return nil, fmt.Errorf("declarator of an unknown form: %q", d)
		}
		fs = append(fs, field{name: dm[1], count: dm[2], ctype: m[3], atomic: m[2] != ""})
	}
	return fs, nil
}
