package python

import (
	"encoding/binary"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is a string as CPython keeps it: characters of kind bytes each. What is no character, a lone surrogate for
// one, becomes U+FFFD.
func Text(b []byte, kind uint8) string {
	var s strings.Builder
	for len(b) > 0 && len(b) >= int(kind) {
		r := rune(b[0])
		switch kind {
		case 1:
			b = b[1:]
		case 2:
			r = rune(binary.LittleEndian.Uint16(b))
			b = b[2:]
		case 4:
			r = utf8.RuneError
			if v := binary.LittleEndian.Uint32(b); v <= utf8.MaxRune {
				r = rune(v)
			}
			b = b[4:]
		default:
			return ""
		}
		if utf16.IsSurrogate(r) {
			r = utf8.RuneError
		}
		s.WriteRune(r)
	}
	return s.String()
}
