package folded

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/internal/synthetic"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/trace/tracetest"
)

var update = flag.Bool("update", false, "rewrite the goldens")

var line = regexp.MustCompile(`^[^;]+(;[^;]+)* [0-9]+$`)

// check holds the output against the format and the weights.
func check(t *testing.T, src trace.Source, v weigh.Value, out string) {
	t.Helper()
	tab, err := weigh.Collect(src, weigh.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, l := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
		if !line.MatchString(l) {
			t.Errorf("not a folded stack: %q", l)
			continue
		}
		n, err := strconv.ParseInt(l[strings.LastIndexByte(l, ' ')+1:], 10, 64)
		if err != nil {
			t.Error(err)
		}
		sum += n
	}
	if sum != tab.Total[v] {
		t.Errorf("%v: lines sum to %d, the recording to %d", v, sum, tab.Total[v])
	}
}

func TestGolden(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
	}{
		{"cpu", Options{}}, {"blocked", Options{Value: "blocked"}}, {"wall", Options{Value: "wall"}},
		{"alloc_space", Options{Value: "alloc_space"}}, {"blocked-threads", Options{Value: "blocked", Threads: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Write(&b, synthetic.Demo(), tt.o); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(tt.name, "-")
			v, err := weigh.ParseValue(name)
			if err != nil {
				t.Fatal(err)
			}
			check(t, synthetic.Demo(), v, b.String())
			path := filepath.Join("testdata", tt.name+".txt")
			if *update {
				if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("%s differs (run with -update and look at the difference):\n%s", path, b.String())
			}
		})
	}
}

func TestNamesCannotBreakALine(t *testing.T) {
	b := tracetest.New()
	th := b.AddThread(trace.Thread{TID: 1, Name: "a;b\nc"})
	b.Sample(th, 1, 2, "std::map<int;int>", "x\ny")
	var out bytes.Buffer
	if err := Write(&out, b.Source(), Options{Threads: true}); err != nil {
		t.Fatal(err)
	}
	if want := "a:b c 1;std::map<int:int>;x y 2\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestErrors(t *testing.T) {
	b := tracetest.New()
	b.Meta().Features = []string{"cpu"}
	b.Sample(b.AddThread(trace.Thread{TID: 1}), 1, 2, "f")
	for _, tt := range []struct {
		w    io.Writer
		o    Options
		want string
	}{
		{io.Discard, Options{Value: "heat"}, "use one of samples, cpu"},
		{io.Discard, Options{Value: "alloc_space"}, "the recording has no alloc_space"},
		{broken{}, Options{}, "disk full"},
	} {
		if err := Write(tt.w, b.Source(), tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.o, err, tt.want)
		}
	}
}
