package attach

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/hbtrace/hbtrace/segment"
	"golang.org/x/sys/unix"
)

// Session is what a program is to be recorded in.
type Session struct {
	Hello segment.Hello // HostPID is filled in
	FDs   []int         // of the segment, and of the unwind tables where there are any
}

// Join attaches to a process: when it returns, calls of the program go through the agent, and the first one makes it a recorded process
// (Joined). What an earlier recorder left there is taken back before. On an error nothing is left but the thunks' page.
func Join(pid int, s Session) (t *Target, err error) {
	if err := Check(pid); err != nil {
		return nil, err
	}
	t, err = open(pid)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			t.Close()
			t = nil
		}
	}()
	if err = t.own(2 * time.Second); err != nil {
		return t, err
	}
	t.lookBefore()
	reached(StepOpened)
	if _, err = t.silent(); err != nil {
		return t, err
	}
	if err = t.checkSeccomp(); err != nil {
		return t, err
	}
	if err = t.endEarlier(); err != nil {
		return t, err
	}
	if err = t.readModules(); err != nil {
		return t, err
	}
	if t.image, err = readImage(); err != nil {
		return t, err
	}
	if err = t.enter(s); err != nil {
		err = errors.Join(err, t.undo())
		if w := t.OtherVersion(); w != "" && mayNotStop(err) {
			err = fmt.Errorf("%w; %s", err, w)
		}
	}
	return t, err
}

// silent reads the modules, and gives back the calls that a dead attacher has led to the ring of a dormant agent. there were such.
func (t *Target) silent() (were bool, err error) {
	if err := t.readModules(); err != nil {
		return false, err
	}
	t.findDormant()
	return t.silenceEarlier()
}

// enter is the part of Join that changes the program.
func (t *Target) enter(s Session) error {
	libc, err := t.libc()
	if err != nil {
		return err
	}
	d, r := t.lookUp()
	t.reals = r
	if err := t.mapMemory(); err != nil {
		return err
	}
	reached(StepMapped)
	if err := t.image.relocate(t.image.base, func(name string) uint64 { at, _ := d.find(name, ""); return at }); err != nil {
		return err
	}
	rec, err := t.record()
	if err != nil {
		return err
	}
	if err := t.deliver(rec, s); err != nil {
		return err
	}
	if err := t.writeAgent(d, libc, rec); err != nil {
		return err
	}
	if err := t.writeThunks(r, rec); err != nil {
		return err
	}
	reached(StepArmed)
	if err := t.readMaps(); err != nil {
		return err
	}
	if err := t.readModules(); err != nil {
		return err
	}
	if err := t.patch(t.plan(r), r); err != nil {
		return err
	}
	time.Sleep(5 * time.Millisecond) // a binding under way may overwrite what it did not see
	t.patchAgain(r)
	t.noteAsleep()
	reached(StepPatched)
	return nil
}

// lookUp finds what the agent and the hooks need of the program.
func (t *Target) lookUp() (definitions, *reals) {
	want := map[string]bool{"environ": true, "_r_debug": true}
	for name := range hooked() {
		want[name] = true
	}
	for _, name := range []string{"pthread_rwlock_tryrdlock", "pthread_rwlock_trywrlock", "pthread_spin_trylock", "mtx_trylock",
		"pthread_attr_getstacksize", "gnu_get_libc_version", "pthread_self", "__errno_location", "_thread_db_pthread_tid"} {
		want[name] = true
	}
	d := t.define(want)
	return d, resolveHooks(d)
}

// library is what is known of the program's C library.
type library struct {
	glibc     bool
	tidOffset uint32 // of a thread's id, from its thread pointer
}

// libc recognises the C library and finds where it keeps thread ids; what is believed is checked against the kernel's word.
func (t *Target) libc() (library, error) {
	for i := range t.modules {
		if isMusl(t.modules[i].name) {
			return library{tidOffset: 48}, nil
		}
	}
	for i := range t.modules {
		m := &t.modules[i]
		if !isLibc(m.name) {
			continue
		}
		var at uint64
		newer := false
		m.each(func(k uint64, s symbol) {
			if s.name == "_thread_db_pthread_tid" && s.value != 0 {
				at = m.bias + s.value
			}
			if s.name == "pthread_create" && s.index != 0 {
				newer = true // since glibc 2.34 libc has the threads in it
			}
		})
		if !newer {
			return library{}, fmt.Errorf("process %d uses a glibc before %s, which is not attached to: record it from its start", t.pid, glibcOldest)
		}
		var desc [12]byte // bits, how many, offset
		if at == 0 || t.read(at, desc[:]) != nil || binary.LittleEndian.Uint32(desc[:]) != 32 {
			return library{}, fmt.Errorf("process %d: its C library does not say where it keeps thread ids: record it from its start", t.pid)
		}
		offset := binary.LittleEndian.Uint32(desc[8:])
		if offset < 0x40 || offset > 0x1000 {
			return library{}, fmt.Errorf("process %d: its C library keeps thread ids at %#x, which makes no sense", t.pid, offset)
		}
		return library{glibc: true, tidOffset: offset}, nil
	}
	return library{}, fmt.Errorf("process %d uses neither glibc nor musl", t.pid)
}

func isLibc(name string) bool {
	base := name[strings.LastIndexByte(name, '/')+1:]
	return base == "libc.so.6" || strings.HasPrefix(base, "libc-2.") || isMusl(name)
}

// mmap flags and protections
const (
	protRX = unix.PROT_READ | unix.PROT_EXEC
	protRW = unix.PROT_READ | unix.PROT_WRITE
	anon   = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE
	none   = ^uint64(0) // no descriptor
)

// mapMemory has the program map memory for the agent, and for the thunks where it has none yet, and open the pair of sockets. The stub
// itself notes in the record what it mapped: an attacher that is killed from here on leaves nothing that is not known.
func (t *Target) mapMemory() error {
	im := t.image
	for try := 0; ; try++ {
		fresh := t.thunks == 0
		n := im.end
		if fresh {
			n += stayBytes
		}
		at, err := t.gap(n, try)
		if err != nil {
			return err
		}
		thunks, base := t.thunks, at
		var ops []op
		if fresh {
			thunks, base = at+im.end, at
			ops = append(ops,
				op{kind: opMap, nr: sysMmap, args: [6]uint64{thunks, tableAt, protRX, anon | unix.MAP_FIXED_NOREPLACE, none, 0}, undo: true},
				op{kind: opMap, nr: sysMmap, args: [6]uint64{thunks + tableAt, stayBytes - tableAt, protRW, anon | unix.MAP_FIXED_NOREPLACE, none, 0}, undo: true})
		}
		rec := thunks + recordAt
		now := rec + uint64(unsafe.Offsetof(segment.Record{}.Now))
		ops = append(ops,
			op{kind: opMap, nr: sysMmap, args: [6]uint64{base, im.end, protRX, anon | unix.MAP_FIXED_NOREPLACE, none, 0}, undo: true},
			op{kind: opMap, nr: sysMmap, args: [6]uint64{base + im.rw, im.end - im.rw, protRW, anon | unix.MAP_FIXED, none, 0}},
			op{kind: opCall, nr: sysSocketpair, args: [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC, 0, rec + uint64(unsafe.Offsetof(segment.Record{}.Socket))}},
			op{kind: opStore, nr: now + uint64(unsafe.Offsetof(segment.Area{}.Bytes)), args: [6]uint64{im.end}},
			op{kind: opStore, nr: now, args: [6]uint64{base}})
		if fresh {
			ops = append(ops,
				op{kind: opStore, nr: rec + 8, args: [6]uint64{recordVersion}},
				op{kind: opStore, nr: rec, args: [6]uint64{segment.RecordMagic}})
		}
		err = t.run(ops, rec+uint64(unsafe.Offsetof(segment.Record{}.Done)))
		if err != nil {
			if try < 2 && t.alive() && t.readMaps() == nil && t.mappingAt(at) != nil {
				continue // the program took the room meanwhile
			}
			return err
		}
		t.thunks, im.base = thunks, base
		return t.readMaps()
	}
}

// deliver takes one of the sockets that the stub made and sends the session through it.
func (t *Target) deliver(rec *record, s Session) error {
	fd, err := unix.PidfdOpen(t.pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w (attaching needs Linux 5.6)", t.pid, err)
	}
	defer unix.Close(fd)
	ours, err := unix.PidfdGetfd(fd, int(rec.Peer), 0)
	if err != nil {
		return fmt.Errorf("process %d: take a socket from it: %w (attaching needs Linux 5.6, and a free descriptor in the program)", t.pid, err)
	}
	t.socket = ours
	s.Hello.HostPID = uint32(t.pid)
	msg := make([]byte, segment.HelloBytes)
	s.Hello.Encode(msg)
	if err := unix.Sendmsg(ours, msg, unix.UnixRights(s.FDs...), nil, unix.MSG_DONTWAIT); err != nil {
		return fmt.Errorf("give process %d the session: %w", t.pid, err)
	}
	return nil
}

// socketInode is the inode of a descriptor of the program, 0 where it is no socket.
func (t *Target) socketInode(fd int32) uint64 {
	link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", t.pid, fd))
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// writeAgent writes text, data and what the agent has to know.
func (t *Target) writeAgent(d definitions, libc library, rec *record) error {
	im := t.image
	if err := t.write(im.base, im.bytes); err != nil {
		return err
	}
	for _, w := range im.wanted() {
		at, _ := d.find(w.name, w.version)
		if err := t.write64(w.slot, at); err != nil {
			return err
		}
	}
	aux := auxv(t.pid)
	const atSysinfoEhdr, atRandom = 33, 25
	j := segment.Join{
		State: segment.JoinReady, PID: uint32(t.innerPID()), TIDOffset: libc.tidOffset,
		Socket: rec.Socket, Peer: rec.Peer, SocketIno: t.socketInode(rec.Socket), PeerIno: t.socketInode(rec.Peer),
		Vdso: aux[atSysinfoEhdr], Random: aux[atRandom], Restorer: t.thunks + restorerAt,
		ThreadStart: t.thunks + startAt, ThreadStartEnd: t.thunks + startEnd,
	}
	if libc.glibc {
		j.IsGlibc = 1
	}
	b := make([]byte, segment.JoinBytes)
	j.Encode(b)
	t.join = im.at("hb_join")
	if err := t.write(t.join+4, b[4:]); err != nil {
		return err
	}
	return t.write(t.join, b[:4])
}

// innerPID is the process's id as it sees itself.
func (t *Target) innerPID() int {
	f := strings.Fields(status(t.pid)["NSpid"])
	if len(f) == 0 {
		return t.pid
	}
	n, err := strconv.Atoi(f[len(f)-1])
	if err != nil {
		return t.pid
	}
	return n
}

// writeThunks writes the page that stays, and notes what there is to take back.
func (t *Target) writeThunks(r *reals, rec *record) error {
	im := t.image
	table, reals := make([]byte, realsAt-tableAt), make([]byte, recordAt-realsAt)
	for name, h := range hooked() {
		real := r[h.ID].at
		wrapper := im.hooks[name]
		if real == 0 || wrapper == 0 {
			wrapper = real
		}
		binary.LittleEndian.PutUint64(table[8*h.ID:], wrapper)
		binary.LittleEndian.PutUint64(reals[8*h.ID:], real)
	}
	binary.LittleEndian.PutUint64(table[8*tableBegins:], im.at("hb_thread_begins"))
	binary.LittleEndian.PutUint64(table[8*tableEnds:], im.at("hb_thread_ends"))
	starts := im.local["hb_starts"]
	start, err := startTicks(os.Getpid())
	if err != nil {
		return err
	}
	rec.Recorder, rec.RecorderStart = uint32(os.Getpid()), start
	rec.Now = segment.Area{
		At: im.base, Bytes: im.end, Text: im.base + im.text[0], TextBytes: im.text[1] - im.text[0], Join: t.join, Leave: im.at("hb_leave"),
		Starts: im.base + starts.Value, StartsBytes: starts.Size,
	}
	if err := t.putRecord(rec); err != nil {
		return err
	}
	reached(StepWritten)
	if err := t.write(t.thunks+realsAt, reals); err != nil {
		return err
	}
	for at := 0; at < len(table); at += 8 { // one by one: the program may have kept addresses of thunks, and none of these is to be seen half-written
		if err := t.write(t.thunks+tableAt+uint64(at), table[at:at+8]); err != nil {
			return err
		}
	}
	want, have := thunkPage(), make([]byte, tableAt)
	if err := t.read(t.thunks, have); err != nil || bytes.Equal(want, have) {
		return err
	}
	return t.write(t.thunks, want)
}

// Text is where the agent's text lies in the program, and where in its file.
func (t *Target) Text() (lo, hi, offset uint64) {
	im := t.image
	return im.base + im.text[0], im.base + (im.text[1]+4095)&^4095, im.textOffset
}

// Joined says whether the program has become a recorded process, and as which; an error says that it cannot.
func (t *Target) Joined() (slot int, uid uint32, ok bool, err error) {
	b := make([]byte, segment.JoinBytes)
	if err := t.read(t.join, b); err != nil {
		return 0, 0, false, err
	}
	var j segment.Join
	j.Decode(b)
	switch j.State {
	case segment.JoinDone:
		return int(j.ProcSlot), j.ProcUID, true, nil
	case segment.JoinRefused:
		return 0, 0, false, fmt.Errorf("process %d cannot be recorded: reason %d", t.pid, j.Refused)
	}
	return 0, 0, false, nil
}
