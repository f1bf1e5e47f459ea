package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

// A comparison shows what is in both recordings, what is only before and what is only after, each with its two weights.
func TestFlameDiff(t *testing.T) {
	record := func(own string, ns int64) *tracetest.Builder {
		b := tracetest.New()
		th := b.AddThread(trace.Thread{Proc: b.AddProcess(trace.Process{PID: 1}), TID: 1})
		b.Sample(th, 10*ms, 100*ms, "main", "same")
		b.Sample(th, 20*ms, ns, "main", own)
		b.Sample(th, 30*ms, ns/2, "main", "grew_or_shrank")
		return b
	}
	var b bytes.Buffer
	if err := FlameDiff(&b, record("gone<T>", 80*ms).Source(), record("new", 240*ms).Source(), FlameOptions{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not XML: %v", err)
		}
	}
	for _, want := range []string{
		"<title>same\n100 ms in both</title>",
		"<title>gone&lt;T&gt;\n80.0 ms before, 0 s after: −80.0 ms (−100 %)</title>",
		"<title>new\n0 s before, 240 ms after: +240 ms</title>",
		"<title>grew_or_shrank\n40.0 ms before, 120 ms after: +80.0 ms (+200 %)</title>",
		"220 ms before, 460 ms after",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the picture\n%s", want, text)
		}
	}
}
