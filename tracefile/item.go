// The structs of package trace on their own, for files that hold a recording in pieces.

package tracefile

import (
	"reflect"

	"github.com/hbtrace/hbtrace/trace"
)

// Item is a struct that a recording stores by its fields.
type Item interface {
	trace.Meta | trace.Stats | trace.Process | trace.Thread | trace.Module
}

// AppendItem appends v as recordings store it.
func AppendItem[T Item](dst []byte, v *T) []byte { return appendFields(dst, reflect.ValueOf(v).Elem()) }

// DecodeItem is the opposite of AppendItem. Fields that p does not name are left as they are.
func DecodeItem[T Item](p []byte, v *T) error { return decodeFields(p, reflect.ValueOf(v).Elem()) }
