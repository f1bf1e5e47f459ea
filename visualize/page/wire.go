// The form in which numbers go to the page: columns, little-endian, each of its own length and aligned, behind a
// header in JSON. The other side is web/table.ts.
//
//	u32 length of the header | header, padded with spaces so that columns begin at a multiple of 8 | columns, each padded with zeros to 8
//
// header: {"info": …, "columns": [{"name", "type", "rows"}]}

package page

import (
	"encoding/binary"
	"encoding/json"
	"math"
)

type table struct {
	info    any
	columns []column
	body    []byte
}

type column struct {
	Name string `json:"name"`
	Type string `json:"type"` // f64, u32, u16, u8
	Rows int    `json:"rows"`
}

func newTable(info any) *table { return &table{info: info} }

func (t *table) pad() {
	for len(t.body)%8 != 0 {
		t.body = append(t.body, 0)
	}
}

func (t *table) u32(name string, v []uint32) {
	t.columns = append(t.columns, column{name, "u32", len(v)})
	for _, x := range v {
		t.body = binary.LittleEndian.AppendUint32(t.body, x)
	}
	t.pad()
}

func (t *table) u16(name string, v []uint16) {
	t.columns = append(t.columns, column{name, "u16", len(v)})
	for _, x := range v {
		t.body = binary.LittleEndian.AppendUint16(t.body, x)
	}
	t.pad()
}

func (t *table) u8(name string, v []uint8) {
	t.columns = append(t.columns, column{name, "u8", len(v)})
	t.body = append(t.body, v...)
	t.pad()
}

func (t *table) f64(name string, v []float64) {
	t.columns = append(t.columns, column{name, "f64", len(v)})
	for _, x := range v {
		t.body = binary.LittleEndian.AppendUint64(t.body, math.Float64bits(x))
	}
	t.pad()
}

// bytes is the table as it is sent.
func (t *table) bytes() ([]byte, error) {
	if t.columns == nil {
		t.columns = []column{}
	}
	head, err := json.Marshal(struct {
		Info    any      `json:"info"`
		Columns []column `json:"columns"`
	}{t.info, t.columns})
	if err != nil {
		return nil, err
	}
	for (4+len(head))%8 != 0 {
		head = append(head, ' ')
	}
	out := make([]byte, 0, 4+len(head)+len(t.body))
	out = binary.LittleEndian.AppendUint32(out, uint32(len(head)))
	out = append(out, head...)
	return append(out, t.body...), nil
}
