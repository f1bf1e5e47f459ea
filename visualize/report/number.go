// Numbers in columns: units are padded to one width, so that right-aligned columns line up their digits.

package report

import (
	"strings"

	"github.com/hbtrace/hbtrace/visualize/number"
)

// duration is a time for a column of times, its unit padded to two columns.
func duration(ns int64) string {
	s := number.Duration(ns)
	if strings.HasSuffix(s, " s") || strings.HasSuffix(s, " h") {
		s += " "
	}
	return s
}

// byteSize is a size for a column of sizes, its unit padded to three columns.
func byteSize(n uint64) string {
	s := number.Bytes(n)
	if n < 1024 {
		s += "  "
	}
	return s
}

// inline is a number for the middle of a sentence, without the padding of columns.
func inline(s string) string { return strings.TrimRight(s, " ") }
