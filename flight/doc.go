// Package flight is the flight recorder: it keeps the newest events of a program that runs in memory of a fixed size,
// and makes ordinary recordings of them on demand.
//
//	w, err := flight.Create(flight.Config{…})       // the recorder's side: window.go
//	err = w.PutThread(&t)                            // and PutProcess, PutModule: again whenever they change
//	err = w.Write(events)                            // newest events; the oldest are overwritten
//	err = w.Keyframe(flight.State{…})                // about once a second, and before a dump
//
//	c, err := flight.Read(dir)                       // from any process, while the recorder runs or after it died: read.go
//	res, err := c.Dump("app.hbt", flight.Dump{…})    // an ordinary recording: dump.go
//
// A session is a directory (dir.go) with three files:
//
//   - window: a block buffer in its overwriting mode. Its records are batches of events and keyframes (record.go).
//   - dict: what events refer to by number: processes, threads, modules, nodes of stacks (dict.go). It is appended to,
//     and written anew when more than half of it is dead.
//   - session.json: who records what, and how to ask for a dump.
//
// # Order of writing
//
// What an event refers to is in dict before the event is in window. A number is given to something else only when no
// block that can be read refers to it any more. A reader therefore copies the blocks first, reads dict second, and then
// drops the blocks that were overwritten in the meantime: the numbers of all others mean what dict says. The recorder
// never waits for a reader. docs/design/flight-recorder.md has the reasons.
package flight
