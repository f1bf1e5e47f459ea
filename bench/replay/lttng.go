package main

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/hbtrace/hbtrace/bench/replay/measure"
	"github.com/hbtrace/hbtrace/bench/replay/tracer"
	"github.com/hbtrace/hbtrace/bench/replay/workload"
)

// lttng.go: LTTng-UST, from the distribution's packages, in overwriting mode with a ring for each core. It writes
// from C (lttng/writer.c does there what engine.go does here), so its space compares with everybody's and its
// latency is C's. lttng/session.sh says how twelve cores come about on fewer processors.

//go:embed lttng
var lttngSources embed.FS

// errUnavailable: a tracer needs something that is not installed.
var errUnavailable = errors.New("not installed")

var lttngInfo = tracer.Info{Name: "lttng", Is: "LTTng-UST in overwriting mode, a ring for each core, written from C"}

func allTracers() []tracer.Info {
	return append(append([]tracer.Info(nil), tracer.All...), lttngInfo, tracer.Null)
}

// do is a replay on any tracer.
func (r Replay) do(watch stopwatch) (Result, error) {
	if r.Tracer == lttngInfo.Name {
		return r.runLTTng()
	}
	return r.Run(watch)
}

// lttngTools builds the writer and its plugin, once.
var lttngTools = sync.OnceValues(func() (dir string, err error) {
	for _, tool := range []string{"lttng", "lttng-sessiond", "gcc", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %s (on Debian: apt-get install lttng-tools liblttng-ust-dev gcc util-linux)", errUnavailable, tool)
		}
	}
	if os.Geteuid() != 0 {
		return "", fmt.Errorf("LTTng with more cores than processors: %w: it takes root for a mount namespace", errUnavailable)
	}
	dir, err = os.MkdirTemp("", "hbtrace-replay-lttng-")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, lttngSources); err != nil {
		return "", err
	}
	src := filepath.Join(dir, "lttng")
	for _, args := range [][]string{
		{"-o", filepath.Join(dir, "writer"), filepath.Join(src, "writer.c"), "-rdynamic", "-llttng-ust", "-lm", "-lpthread", "-ldl"},
		{"-DGETCPU_PLUGIN", "-shared", "-fPIC", "-o", filepath.Join(dir, "getcpu.so"), filepath.Join(src, "writer.c"), "-llttng-ust"},
	} {
		out, err := exec.Command("gcc", append([]string{"-O2", "-I" + src}, args...)...).CombinedOutput()
		if err != nil {
			os.RemoveAll(dir)
			return "", fmt.Errorf("%w: building the LTTng writer (on Debian: apt-get install liblttng-ust-dev): %s", errUnavailable, firstLine(out))
		}
	}
	return dir, nil
})

// dropTools removes what lttngTools built, if it did.
func dropTools(replays []Replay) {
	for _, r := range replays {
		if r.Tracer == lttngInfo.Name {
			if dir, err := lttngTools(); err == nil {
				os.RemoveAll(dir)
			}
			return
		}
	}
}

func firstLine(b []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	return line
}

func (r Replay) runLTTng() (Result, error) {
	tools, err := lttngTools()
	if err != nil {
		return Result{}, err
	}
	dir, err := os.MkdirTemp("", "hbtrace-replay-session-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	for _, f := range []string{"writer", "getcpu.so"} {
		if err := os.Symlink(filepath.Join(tools, f), filepath.Join(dir, f)); err != nil {
			return Result{}, err
		}
	}
	atATime, _ := r.identities()
	var orders bytes.Buffer
	fmt.Fprintln(&orders, r.Duration.Seconds(), atATime, runtime.NumCPU(), lateAfter)
	for _, rate := range r.Workload.Rates {
		fmt.Fprintln(&orders, rate*r.Speed)
	}
	for _, n := range workload.SizeTable() {
		fmt.Fprintln(&orders, n)
	}
	if err := os.WriteFile(filepath.Join(dir, "orders"), orders.Bytes(), 0o644); err != nil {
		return Result{}, err
	}
	subbufs := r.Config.Bytes / workload.Cores / lttngPacket
	out, err := exec.Command("unshare", "--mount", "sh", filepath.Join(tools, "lttng", "session.sh"), dir, fmt.Sprint(subbufs)).CombinedOutput()
	if err != nil {
		return Result{}, fmt.Errorf("%w: LTTng session: %v: %s", errUnavailable, err, firstLine(out))
	}
	return r.judgeLTTng(dir)
}

func (r Replay) judgeLTTng(dir string) (Result, error) {
	var stamps uint64
	var single, batch measure.Latency
	var late []uint64
	measured, err := os.Open(filepath.Join(dir, "measured"))
	if err != nil {
		return Result{}, err
	}
	defer measured.Close()
	for lines := bufio.NewScanner(measured); lines.Scan(); {
		var what string
		var a, b uint64
		if _, err := fmt.Sscan(lines.Text(), &what, &a, &b); err != nil {
			return Result{}, fmt.Errorf("the LTTng writer says %q: %w", lines.Text(), err)
		}
		switch what {
		case "stamps":
			stamps = a
		case "single":
			single.AddBin(int(a), uint32(b))
		case "batch":
			batch.AddBin(int(a), uint32(b))
		case "late":
			late = append(late, a)
		}
	}
	s := measure.NewSnapshot(stamps, workload.Size)
	rings, err := filepath.Glob(filepath.Join(dir, "out", "*", "ust", "uid", "*", "*", "ring_*"))
	if err != nil {
		return Result{}, err
	}
	for _, ring := range rings {
		b, err := os.ReadFile(ring)
		if err != nil {
			return Result{}, err
		}
		if err := walkCTF(b, s.Add); err != nil {
			return Result{}, fmt.Errorf("%s: %w", ring, err)
		}
	}
	if err := s.Err(); err != nil {
		return Result{}, fmt.Errorf("snapshot of LTTng on %s: %w", r.Workload.Name, err)
	}
	s.Late(late)
	h := s.History(func(n int) int { return n + 2 + 4 + 4 }) // id, time stamp, length
	res := r.result(h, &single, &batch)
	// What LTTng discards it counts by sub-buffer; of the newest records, what is missing says as much.
	res.Dropped = h.NewestMissing
	res.Counters = map[string]int{"rings": len(rings)}
	return res, nil
}

const (
	lttngPacket  = 4096
	ctfMagic     = 0xc1fc1fc1
	ctfPacketTop = 32 + 52 // packet.header and packet.context
)

// walkCTF goes through the packets of one stream: as LTTng-UST 2.13 describes them in the file metadata, with
// event_header_large and everything on byte boundaries.
func walkCTF(b []byte, f func(p []byte)) error {
	for len(b) > 0 {
		if len(b) < ctfPacketTop || binary.LittleEndian.Uint32(b) != ctfMagic {
			return errors.New("not a CTF packet")
		}
		content, size := binary.LittleEndian.Uint64(b[48:])/8, binary.LittleEndian.Uint64(b[56:])/8
		if content < ctfPacketTop || content > size || size > uint64(len(b)) {
			return fmt.Errorf("packet of %d bytes says that it has %d, %d of them content", len(b), size, content)
		}
		for e := b[ctfPacketTop:content]; len(e) > 0; {
			head := 6 // id 2, time stamp 4
			if len(e) >= 2 && binary.LittleEndian.Uint16(e) == 1<<16-1 {
				head = 14 // id 2, real id 4, time stamp 8
			}
			if len(e) < head+4 {
				return errors.New("an event is cut off")
			}
			n := int(binary.LittleEndian.Uint32(e[head:]))
			if n > len(e)-head-4 {
				return fmt.Errorf("event of %d bytes, %d are left of the packet", n, len(e)-head-4)
			}
			f(e[head+4 : head+4+n])
			e = e[head+4+n:]
		}
		b = b[size:]
	}
	return nil
}
