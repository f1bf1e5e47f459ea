package tracefile

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

var (
	update     = flag.Bool("update", false, "write what testdata/recording-*.golden read as anew")
	updateFile = flag.Bool(
		"update-recording",
		false,
		"write testdata/recording-v3.golden anew: only where version 3 of its sections was never released",
	)
)

// TestGolden reads a recording that was written when the version of its sections was made: it must read the same for
// ever. What writers write may change.
func TestGolden(t *testing.T) {
	if *updateFile {
		data, _ := recycled(t, 60, 25)
		if err := os.WriteFile("testdata/recording-v3.golden", data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"testdata/recording-v3"} {
		r := mustOpen(t, file+".golden")
		got := dump(t, r)
		if *update {
			if err := os.WriteFile(file+".txt", []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s.golden reads as\n%s\nwant\n%s", file, got, want)
		}
	}
}

// dump writes everything in a recording, leaving out zeros, so that new fields change nothing.
func dump(t *testing.T, s trace.Source) string {
	var b strings.Builder
	line := func(what string, v any) { fmt.Fprintf(&b, "%s%s\n", what, nonZero(reflect.ValueOf(v))) }
	line("meta", *s.Meta())
	line("stats", *s.Stats())
	for _, p := range s.Processes() {
		line("process", p)
	}
	for _, t := range s.Threads() {
		line("thread", t)
	}
	for _, m := range s.Modules() {
		line("module", m)
	}
	for id := trace.StackID(1); int(id) <= s.Nodes(); id++ {
		line(fmt.Sprintf("node %d", id), s.Node(id))
		for _, f := range s.Symbols(id) {
			line("  symbol", f)
		}
	}
	for _, e := range events(t, s) {
		line("event", e)
	}
	return b.String()
}

func nonZero(v reflect.Value) string {
	if v.Kind() != reflect.Struct || v.Type() == timeType {
		return fmt.Sprintf("%+q", fmt.Sprint(v.Interface()))
	}
	var s string
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			s += " " + v.Type().Field(i).Name + "="
			if f.Kind() == reflect.Struct && f.Type() != timeType {
				s += "{" + nonZero(f) + " }"
			} else {
				s += nonZero(f)
			}
		}
	}
	return s
}

// TestEveryStructFieldIsStored sets every field of every stored struct to something and reads it back: it fails
// where package trace gets a field of a type that fields.go has no form for.
func TestEveryStructFieldIsStored(t *testing.T) {
	for _, v := range []any{new(trace.Meta), new(trace.Stats), new(trace.Process), new(trace.Thread), new(trace.Module)} {
		in := reflect.ValueOf(v).Elem()
		fillAll(t, in)
		out := reflect.New(in.Type()).Elem()
		if err := decodeFields(appendFields(nil, in), out); err != nil {
			t.Errorf("%s: %v", in.Type(), err)
		}
		if !reflect.DeepEqual(in.Interface(), out.Interface()) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", in.Type(), out.Interface(), in.Interface())
		}
	}
}

func fillAll(t *testing.T, v reflect.Value) {
	t.Helper()
	for i := range v.NumField() {
		f := v.Field(i)
		switch {
		case f.Type() == timeType:
			f.Set(reflect.ValueOf(sample(0).Meta().Started))
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		case f.CanUint():
			f.SetUint(1<<f.Type().Bits() - 1)
		case f.CanInt():
			f.SetInt(-1 << (f.Type().Bits() - 1))
		case f.Kind() == reflect.String:
			f.SetString("s\xff" + v.Type().Field(i).Name)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			f.Set(reflect.MakeSlice(f.Type(), 2, 2))
			fillAll(t, f.Index(0))
			fillAll(t, f.Index(1))
		case f.Kind() == reflect.Slice:
			f.Set(reflect.ValueOf([]string{"", "a\xff", "b"}).Convert(f.Type()))
		case f.Kind() == reflect.Struct:
			fillAll(t, f)
		case f.Kind() == reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
			for k := range 3 {
				key, value := reflect.New(f.Type().Key()).Elem(), reflect.New(f.Type().Elem()).Elem()
				key.SetUint(uint64(k * 300))
				fillAll(t, value)
				f.SetMapIndex(key, value)
			}
		default:
			t.Errorf("%s.%s: fields.go must store a %s", v.Type(), v.Type().Field(i).Name, f.Type())
		}
	}
}
