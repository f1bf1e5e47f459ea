package symbols

import "github.com/hbtrace/hbtrace/trace"

// pythonLines names addrs of a function of Python: they are lines of its file.
func pythonLines(m *trace.Module, addrs []uint64) [][]trace.SymFrame {
	out := make([][]trace.SymFrame, len(addrs))
	if m.Func == "" {
		return out
	}
	for i, a := range addrs {
		out[i] = []trace.SymFrame{{Func: m.Func, File: m.Path, Line: int(a)}}
	}
	return out
}
