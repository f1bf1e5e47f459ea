package perfettotest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func TestParse(t *testing.T) {
	rows, err := parse([]byte("check: nothing amiss\n{\"b\":1,\"a\":null}\n{\"b\":\"x y\",\"a\":2.5}\n{}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"1", "[NULL]"}, {"x y", "2.5"}, {}}
	if !slices.EqualFunc(rows, want, slices.Equal[[]string]) {
		t.Errorf("%q, want %q", rows, want)
	}
	if _, err := parse([]byte("{\"a\":\n")); err == nil {
		t.Error("half a row is no row")
	}
}

func msg(field protowire.Number, b []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
}

func num(field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.VarintType), v)
}

// packet is TracePacket{sequence 1, timestamp, track event}.
func packet(at uint64, event ...[]byte) []byte {
	return msg(1, slices.Concat(num(8, at), num(10, 1), msg(11, slices.Concat(event...))))
}

// TestChecksFindFaults holds the SQL of Check against a trace that has what it looks for.
func TestChecksFindFaults(t *testing.T) {
	begin, instant := num(9, 1), num(9, 3)
	flow := func(field protowire.Number) []byte {
		return protowire.AppendFixed64(protowire.AppendTag(nil, field, protowire.Fixed64Type), 7)
	}
	track := msg(1, slices.Concat(num(10, 1), msg(60, slices.Concat(num(1, 5), msg(4, slices.Concat(num(1, 10), num(2, 11)))))))
	on := num(11, 5)
	trace := slices.Concat(track,
		packet(100, begin, on, msg(23, []byte("never closed"))),
		packet(110, instant, on, flow(47), msg(23, []byte("from"))),
		packet(120, instant, on, flow(48)), // no name
		packet(130, begin, on, msg(23, []byte("liar"))),
		packet(140, num(9, 2), on, msg(4, slices.Concat(msg(10, []byte("self_us")), num(3, 1000)))),
		msg(1, slices.Concat(num(8, 150), num(10, 1), num(13, 1), msg(66, slices.Concat(num(2, 10), num(3, 11))))), // without a call stack
	)
	path := filepath.Join(t.TempDir(), "faulty")
	if err := os.WriteFile(path, trace, 0o644); err != nil {
		t.Fatal(err)
	}
	var sqls []string
	for _, c := range checks {
		sqls = append(sqls, c.sql)
	}
	found := map[string]int{}
	for i, rows := range ask(t, false, path, append(sqls, "select count(*) from flow")) {
		if i < len(checks) {
			found[checks[i].what] = len(rows)
		} else if rows[0][0] != "1" {
			t.Errorf("%s flows, want 1", rows[0][0])
		}
	}
	for _, what := range []string{"slices that were never closed", "slices without a name", "threads without a name",
		"spans that had more time to themselves, on a CPU or blocked than they took", "samples without a call stack, or of nobody's thread"} {
		if found[what] == 0 {
			t.Errorf("the check for %s finds none", what)
		}
	}
	if n := found["flows that lack an end, or point back in time"]; n != 0 {
		t.Errorf("a good flow is taken for a bad one")
	}
}
