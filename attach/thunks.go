package attach

import (
	"encoding/binary"
	"fmt"

	"github.com/hbtrace/hbtrace/segment"
)

// What stays in a program for ever: thunks, since a program may have kept the address of one; the table that they jump through; the
// addresses of the real functions; and a record of what else is there. The thunk of a hook lies at its number, which never changes
// from version to version.
const (
	thunkBytes = 16
	thunkCount = 500
	startAt    = thunkCount * thunkBytes // the first function of new threads
	nothingAt  = 0x1fd0                  // a function that does nothing
	restorerAt = 0x1fe1                  // where a signal handler of the program returns
	tableAt    = 0x2000
	realsAt    = 0x3000
	recordAt   = 0x4000
	stayBytes  = 0x5000

	tableBegins = 510 // table entries that the first function of new threads calls
	tableEnds   = 511

	recordVersion = 1
)

// thunkPage is the executable part; it does not depend on where it lies.
func thunkPage() []byte {
	p := make([]byte, tableAt)
	for i := range p {
		p[i] = 0xcc
	}
	rel := func(at, next, entry int) { // of an instruction that ends at next
		binary.LittleEndian.PutUint32(p[at:], uint32(tableAt+8*entry-next))
	}
	for id := range thunkCount {
		at := id * thunkBytes
		copy(p[at:], "\xf3\x0f\x1e\xfa\xff\x25") // endbr64; jmp *table[id]
		rel(at+6, at+10, id)
	}
	at := startAt
	put := func(s string) { at += copy(p[at:], s) }
	put("\xf3\x0f\x1e\xfa\x53\xff\x15") // endbr64; push rbx; call *table[begins], with what pthread_create was given
	rel(at, at+4, tableBegins)
	at += 4
	put("\x48\x89\xd7\xff\xd0\x48\x89\xc3\xff\x15") // mov rdi, rdx; call rax; mov rbx, rax; call *table[ends]
	rel(at, at+4, tableEnds)
	at += 4
	put("\x48\x89\xd8\x5b\xc3") // mov rax, rbx; pop rbx; ret
	copy(p[nothingAt:], "\xf3\x0f\x1e\xfa\xc3")
	copy(p[restorerAt-1:], "\x90\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05") // nop; mov $15, rax; syscall
	return p
}

const startEnd = startAt + 64

func (t *Target) thunk(id int) uint64 { return t.thunks + uint64(id)*thunkBytes }

// isThunk is the hook whose thunk lies at the address.
func (t *Target) isThunk(at uint64) (id int, ok bool) {
	if t.thunks == 0 || at < t.thunks+thunkBytes || at >= t.thunks+thunkCount*thunkBytes || at%thunkBytes != 0 {
		return 0, false
	}
	return int(at-t.thunks) / thunkBytes, true
}

// record is what a program has of us.
type record struct {
	segment.Record
	old [segment.RecordOld]segment.Area
}

// findThunks looks for the page of an earlier session.
func (t *Target) findThunks() error {
	t.thunks = 0
	for _, m := range t.maps {
		if m.inode != 0 || m.path != "" || m.perms[:3] != "r-x" {
			continue
		}
		if magic, ok := t.read64(m.lo + recordAt); ok && magic == segment.RecordMagic {
			t.thunks = m.lo
		}
	}
	if t.thunks == 0 {
		return nil
	}
	r, err := t.record()
	if err != nil {
		return err
	}
	if r.Version != recordVersion {
		return fmt.Errorf("process %d was attached to by another version of hbtrace, which left something that this one does not know: use that one, or restart the program", t.pid)
	}
	return nil
}

func (t *Target) record() (*record, error) {
	b := make([]byte, segment.RecordBytes+segment.RecordOld*segment.AreaBytes)
	if err := t.read(t.thunks+recordAt, b); err != nil {
		return nil, err
	}
	r := &record{}
	r.Decode(b)
	for i := range r.old {
		r.old[i].Decode(b[segment.RecordBytes+i*segment.AreaBytes:])
	}
	return r, nil
}

func (t *Target) putRecord(r *record) error {
	b := make([]byte, segment.RecordBytes+segment.RecordOld*segment.AreaBytes)
	r.Encode(b)
	for i := range r.old {
		r.old[i].Encode(b[segment.RecordBytes+i*segment.AreaBytes:])
	}
	return t.write(t.thunks+recordAt, b)
}
