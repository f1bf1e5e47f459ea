// Package tracefile reads and writes recordings: .hbt files. docs/design/trace-file.md describes the format.
//
//	w, err := tracefile.Create("hbtrace.hbt", &meta)
//	err = w.PutProcess(&p)         // and PutThread, PutModule: again whenever they change
//	err = w.PutNodes(first, nodes) // as the stack table grows
//	err = w.PutEvents(events)      // in the order of each thread
//	err = w.Flush()                // now and then: what was put survives the recorder
//	err = w.PutSymbols(module, addrs, frames)
//	err = w.Close(&stats)
//
//	r, err := tracefile.Open("hbtrace.hbt")
//	err = trace.Events(r, func(e *trace.Event) error { … })
//
// The file is a log of sections, each with its checksum, so that the death of the recorder or of the machine at
// any moment costs what was not yet written, and nothing else.
//
// The package also has the form in which single events wait in the block buffer: [AppendEvent], [DecodeEvent].
package tracefile
