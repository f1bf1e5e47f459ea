// How the structs of package trace (Meta, Stats, Process, Thread, Module) are stored: as their fields that are
// not zero, each by its name. Older readers skip names that they do not know, newer ones find zero for what was
// not stored; a field of package trace that is renamed goes into the list of those, and a test notices if it does not.
//
// A field is its name (length, bytes), a form (one byte) and the value in that form. A struct is its fields
// one after the other; what encloses it knows its length.

package tracefile

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"time"
)

const (
	formUint = 'u' // uvarint; also bool
	formInt  = 'i' // zigzag varint; also time.Time as UnixNano
	// length and bytes: string, []string (strings), []struct (structs), struct, map[uint]struct (key, struct …)
	formBytes = 'b'
)

var timeType = reflect.TypeFor[time.Time]()

// appendFields appends the fields of a struct, which must be of a type that the forms cover.
func appendFields(dst []byte, v reflect.Value) []byte {
	t := v.Type()
	for i := range t.NumField() {
		f := v.Field(i)
		if f.IsZero() {
			continue
		}
		dst = appendBytes(dst, t.Field(i).Name)
		dst = appendValue(dst, f)
	}
	return dst
}

func appendValue(dst []byte, f reflect.Value) []byte {
	switch {
	case f.Type() == timeType:
		dst = append(dst, formInt)
		return binary.AppendVarint(dst, f.Interface().(time.Time).UnixNano())
	case f.Kind() == reflect.Bool:
		return append(dst, formUint, 1)
	case f.CanUint():
		dst = append(dst, formUint)
		return binary.AppendUvarint(dst, f.Uint())
	case f.CanInt():
		dst = append(dst, formInt)
		return binary.AppendVarint(dst, f.Int())
	case f.Kind() == reflect.String:
		dst = append(dst, formBytes)
		return appendBytes(dst, f.String())
	}
	var in []byte
	switch f.Kind() {
	case reflect.Slice:
		for _, s := range f.Seq2() {
			if s.Kind() == reflect.Struct {
				in = appendBytes(in, appendFields(nil, s))
			} else {
				in = appendBytes(in, s.String())
			}
		}
	case reflect.Struct:
		in = appendFields(in, f)
	case reflect.Map:
		keys := f.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return int(a.Uint()) - int(b.Uint()) })
		for _, k := range keys {
			in = binary.AppendUvarint(in, k.Uint())
			in = appendBytes(in, appendFields(nil, f.MapIndex(k)))
		}
	default:
		panic(fmt.Sprintf("tracefile: no form for a field of type %s", f.Type())) // a test stores every type
	}
	dst = append(dst, formBytes)
	return appendBytes(dst, in)
}

// decodeFields sets the fields of a struct to what p holds. Unknown names, and values in a form that the field
// does not take, are skipped.
func decodeFields(p []byte, v reflect.Value) error {
	c := cursor{p: p}
	for len(c.p) > 0 {
		name := string(c.bytes())
		f := v.FieldByName(name)
		switch form := c.byte(); form {
		case formUint:
			n := c.uvarint()
			switch {
			case !f.IsValid():
			case f.Kind() == reflect.Bool:
				f.SetBool(n != 0)
			case f.CanUint():
				if f.OverflowUint(n) {
					return errMalformed
				}
				f.SetUint(n)
			}
		case formInt:
			n := c.varint()
			switch {
			case !f.IsValid():
			case f.Type() == timeType:
				f.Set(reflect.ValueOf(time.Unix(0, n).UTC()))
			case f.CanInt():
				if f.OverflowInt(n) {
					return errMalformed
				}
				f.SetInt(n)
			}
		case formBytes:
			in := c.bytes()
			if f.IsValid() {
				if err := decodeValue(in, f); err != nil {
					return err
				}
			}
		default:
			return errMalformed
		}
	}
	return c.err()
}

func decodeValue(in []byte, f reflect.Value) error {
	c := cursor{p: in}
	switch f.Kind() {
	case reflect.String:
		f.SetString(string(in))
	case reflect.Slice:
		if f.Type().Elem().Kind() == reflect.Struct {
			list := reflect.MakeSlice(f.Type(), 0, 0)
			for len(c.p) > 0 {
				item := reflect.New(f.Type().Elem()).Elem()
				if err := decodeFields(c.bytes(), item); err != nil {
					return err
				}
				list = reflect.Append(list, item)
			}
			f.Set(list)
			return c.err()
		}
		if f.Type().Elem().Kind() != reflect.String {
			return nil
		}
		var list []string
		for len(c.p) > 0 {
			list = append(list, string(c.bytes()))
		}
		f.Set(reflect.ValueOf(list).Convert(f.Type()))
	case reflect.Struct:
		if f.Type() == timeType {
			return nil
		}
		return decodeFields(in, f)
	case reflect.Map:
		m := reflect.MakeMap(f.Type())
		for len(c.p) > 0 {
			key := reflect.New(f.Type().Key()).Elem()
			value := reflect.New(f.Type().Elem()).Elem()
			n := c.uvarint()
			in := c.bytes()
			if key.OverflowUint(n) {
				return errMalformed
			}
			key.SetUint(n)
			if err := decodeFields(in, value); err != nil {
				return err
			}
			m.SetMapIndex(key, value)
		}
		f.Set(m)
	}
	return c.err()
}

// appendItem appends a struct with its length in front, as one of several in a section.
func appendItem(dst []byte, v any) []byte {
	return appendBytes(dst, appendFields(nil, reflect.ValueOf(v)))
}

// decodeItems calls f for every struct of a section.
func decodeItems[T any](payload []byte, f func(T)) error {
	for c := (cursor{p: payload}); len(c.p) > 0 || c.bad; {
		in := c.bytes()
		if c.bad {
			return errMalformed
		}
		var item T
		if err := decodeFields(in, reflect.ValueOf(&item).Elem()); err != nil {
			return err
		}
		f(item)
	}
	return nil
}
