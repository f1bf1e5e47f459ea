// What the two forms of the page say.

package agree

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/hbtrace/hbtrace/analysis/weigh"
	"github.com/hbtrace/hbtrace/trace"
	"github.com/hbtrace/hbtrace/visualize/page"
)

// table is what the page's questions are answered with: visualize/page/wire.go has the form.
type table struct {
	info    json.RawMessage
	columns map[string][]float64
}

func decode(b []byte) (table, error) {
	n := int(binary.LittleEndian.Uint32(b))
	var head struct {
		Info    json.RawMessage
		Columns []struct {
			Name, Type string
			Rows       int
		}
	}
	if err := json.Unmarshal(b[4:4+n], &head); err != nil {
		return table{}, fmt.Errorf("page: %w", err)
	}
	out := table{head.Info, map[string][]float64{}}
	at := 4 + n
	for _, c := range head.Columns {
		size := map[string]int{"f64": 8, "u32": 4, "u16": 2, "u8": 1}[c.Type]
		for i := range c.Rows {
			v := b[at+i*size:]
			var x float64
			switch size {
			case 8:
				x = math.Float64frombits(binary.LittleEndian.Uint64(v))
			case 4:
				x = float64(binary.LittleEndian.Uint32(v))
			case 2:
				x = float64(binary.LittleEndian.Uint16(v))
			default:
				x = float64(v[0])
			}
			out.columns[c.Name] = append(out.columns[c.Name], x)
		}
		at += (c.Rows*size + 7) / 8 * 8
	}
	return out, nil
}

// places names what is behind the page's numbers of sites.
type places struct {
	names               []string // of functions
	site, parent, frame []float64
}

func placesOf(p table) (places, error) {
	var info struct {
		Frames []struct {
			N string
		}
	}
	if err := json.Unmarshal(p.info, &info); err != nil {
		return places{}, fmt.Errorf("page: %w", err)
	}
	x := places{site: p.columns["site"], parent: p.columns["parent"], frame: p.columns["frame"]}
	for _, f := range info.Frames {
		x.names = append(x.names, f.N)
	}
	return x, nil
}

// cost adds up rows in state running. A site without any function counts as one without a stack.
func (p *places) cost(c cost, rows table) {
	for i, st := range rows.columns["state"] {
		if weigh.State(st) != weigh.Running {
			continue
		}
		seen := map[string]bool{}
		leaf, ns := true, int64(rows.columns["value"][i])
		node := p.site[int(rows.columns["site"][i])]
		if node == 0 {
			c.add(weigh.NoStack, ns, true, seen)
		}
		for ; node != 0; node = p.parent[int(node)] {
			c.add(p.names[int(p.frame[int(node)])], ns, leaf, seen)
			leaf = false
		}
	}
}

// states adds up rows by thread and state.
func (d did) states(src trace.Source, rows table) {
	for i, st := range rows.columns["state"] {
		d.add(pageThread(src, int(rows.columns["thread"][i])), weigh.State(st).Label(), int64(rows.columns["value"][i]))
	}
}

func fromServer(src trace.Source) (did, cost, error) {
	m, err := read(src)
	if err != nil {
		return nil, nil, err
	}
	s, err := page.Listen(m, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	defer func() { // a server that begins to serve when its time is over closes what it listens on
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		s.Serve(ctx)
	}()
	ask := func(what string) ([]byte, error) {
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, s.URL()+what, nil)); w.Code != http.StatusOK {
			return nil, fmt.Errorf("page: %s: %d %s", what, w.Code, w.Body)
		}
		return w.Body.Bytes(), nil
	}
	body, err := ask("about")
	if err != nil {
		return nil, nil, err
	}
	var about struct{ Length int64 }
	if err := json.Unmarshal(body, &about); err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	var answers []table
	for _, what := range []string{
		fmt.Sprintf("lanes?from=0&to=%d&res=1", about.Length), fmt.Sprintf("sums?from=0&to=%d", about.Length), "places",
	} {
		body, err := ask(what)
		if err != nil {
			return nil, nil, err
		}
		t, err := decode(body)
		if err != nil {
			return nil, nil, err
		}
		answers = append(answers, t)
	}
	return summed(src, answers[0], answers[2], answers[1])
}

func fromExport(src trace.Source) (did, cost, error) {
	var out bytes.Buffer
	if err := page.Export(&out, src, page.Options{}); err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	_, rest, ok := strings.Cut(out.String(), `id="recording">`)
	data, _, end := strings.Cut(rest, "</script>")
	if !ok || !end {
		return nil, nil, errors.New("page: the exported file holds no recording")
	}
	zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(data)))
	if err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	all, err := io.ReadAll(zip)
	if err != nil {
		return nil, nil, fmt.Errorf("page: %w", err)
	}
	var tables []table
	for len(all) > 0 {
		n := binary.LittleEndian.Uint32(all)
		t, err := decode(all[8 : 8+n])
		if err != nil {
			return nil, nil, err
		}
		tables = append(tables, t)
		all = all[8+n:]
	}
	return summed(src, tables[1], tables[4], tables[1], tables[2])
}

// summed adds up pieces by thread and state, and those of all tables in sums by the functions that names has.
func summed(src trace.Source, pieces, names table, sums ...table) (did, cost, error) {
	p, err := placesOf(names)
	if err != nil {
		return nil, nil, err
	}
	d, c := did{}, cost{}
	d.states(src, pieces)
	for _, t := range sums {
		p.cost(c, t)
	}
	return d, c, nil
}
