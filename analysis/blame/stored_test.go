package blame

import (
	"reflect"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/stored"
)

// fill sets every exported field to something of its own, lists to two elements.
func fill(v reflect.Value, n *uint64) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(value, n)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.String:
		v.SetString(string(rune('a' + *n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(-int64(*n))
	default:
		v.SetUint(*n % 251)
	}
}

// TestCode: everything that a Result tells, but of single waits, comes back.
func TestCode(t *testing.T) {
	var want, got Result
	var n uint64
	fill(reflect.ValueOf(&want).Elem(), &n)
	want.names = map[Object]string{{1, 2}: "a lock", {1, 3}: "", {2, 2}: "a lock"}
	var keys []EdgeKey
	for k := range want.Edges {
		keys = append(keys, k)
	}
	c := &stored.Coding{}
	want.Code(c, append(keys, EdgeKey{Object: 1 << 40}))
	c = &stored.Coding{P: c.P, Reading: true}
	got.Code(c, nil)
	if c.End(); c.Err != nil {
		t.Fatal(c.Err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
