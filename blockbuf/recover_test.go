package blockbuf

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The child of the kill tests: writes to the buffer in a file until it is killed, from some goroutines, and tells
// on its standard output how far it has come.
func TestMain(m *testing.M) {
	if path := os.Getenv("BLOCKBUF_CHILD"); path != "" {
		child(path)
	}
	os.Exit(m.Run())
}

const (
	childProducers = 4
	deaths         = 8
	killProducers  = (1 + deaths) * childProducers
)

func child(path string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(3)
	}
	var (
		b   *Buffer
		err error
	)
	first, _ := strconv.Atoi(os.Getenv("BLOCKBUF_FIRST"))
	if os.Getenv("BLOCKBUF_MAKE") != "" {
		m, _ := strconv.Atoi(os.Getenv("BLOCKBUF_MAKE"))
		b, err = New(Options{Bytes: 64 * 4096, MaxBytes: 64 * 4096, Slots: 2, File: path, Mapping: Mapping(m)})
	} else {
		b, err = Open(path)
	}
	if err != nil {
		fail(err)
	}
	tell := make(chan struct{})
	for p := range childProducers {
		go func() {
			w := b.Writer(p)
			rng := rand.New(rand.NewPCG(uint64(p), uint64(os.Getpid())))
			for seq := uint32(1); ; seq++ {
				res, err := w.Reserve(12 + rng.IntN(300))
				if errors.Is(err, ErrHeld) {
					seq--
					continue
				}
				if err != nil {
					fail(err)
				}
				putRecord(res.Data, uint32(first+p), seq)
				res.Commit()
				if seq%500 == 0 {
					tell <- struct{}{}
				}
			}
		}()
	}
	for range tell {
		fmt.Println("more")
	}
}

// startChild runs this test's binary as a child that writes to path.
func startChild(t *testing.T, path string, first int, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "BLOCKBUF_CHILD="+path, fmt.Sprint("BLOCKBUF_FIRST=", first))...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// waitFor reads so many reports of a child.
func waitFor(t *testing.T, r *bufio.Reader, n int) {
	t.Helper()
	for range n {
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal("the child has died: ", err)
		}
	}
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}

// TestRecover kills a process with SIGKILL while it records, and reads what it left: nothing is torn, each producer's
// records end where it was, without holes but for the blocks in which something was not committed.
func TestRecover(t *testing.T) {
	forMappings(t, func(t *testing.T, m Mapping) {
		for i := range 5 {
			path := filepath.Join(t.TempDir(), "buffer")
			cmd, out := startChild(t, path, 0, fmt.Sprint("BLOCKBUF_MAKE=", uint32(m)))
			waitFor(t, out, 1+7*i)
			kill(t, cmd)
			blocks, stats, err := Recover(path)
			if err != nil {
				t.Fatal(err)
			}
			var last [killProducers]uint32
			partial, count := 0, 0
			for _, k := range blocks {
				if k.Partial {
					partial++
				}
				checkBlock(t, k, last[:])
				k.Records(func([]byte) bool { count++; return true })
			}
			if partial > childProducers {
				t.Errorf("%d blocks are partial, of %d producers", partial, childProducers)
			}
			if len(blocks) == 0 || count == 0 || stats.Head == 0 {
				t.Errorf("recovered %d records in %d blocks; %+v", count, len(blocks), stats)
			}
			// Having told of 500 records, a producer has these in the file, unless they were overwritten.
			if oldest := blocks[0].Pos; oldest == 1 && partial == 0 {
				total := uint32(0)
				for _, n := range last {
					total += n
				}
				if total != uint32(count) {
					t.Errorf("the last records are %v, but there are %d", last, count)
				}
			}
			again, _, err := Recover(path)
			if err != nil || len(again) != len(blocks) {
				t.Errorf("a second look at the file gives %d blocks, not %d: %v", len(again), len(blocks), err)
			}
		}
	})
}

// TestKilledProducers lets processes that share a buffer be killed in the middle of what they do, again and again.
// What remains works on, and each death costs no more than one block for each producer that died.
func TestKilledProducers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buffer")
	b := mustNew(t, Options{Bytes: 256 * 4096, MaxBytes: 256 * 4096, Slots: 2, File: path})
	r := b.NewReader()
	w := b.Writer(0)
	rec := make([]byte, 500)
	var last [killProducers]uint32
	for i := range deaths {
		cmd, out := startChild(t, path, (1+i)*childProducers)
		for j := range uint32(500) {
			putRecord(rec, 0, uint32(i)*500+j+1)
			write(t, w, rec)
		}
		waitFor(t, out, 2)
		kill(t, cmd)
		b.Seal()
		for k, ok := r.Next(); ok; k, ok = r.Next() {
			checkBlock(t, k, last[:])
		}
		var of [killProducers]uint32
		for _, k := range b.Snapshot() {
			checkBlock(t, k, of[:])
		}
	}
	for range 3 * 256 {
		write(t, w, make([]byte, 4000))
	}
	if got := len(b.Snapshot()); got < 256-deaths*childProducers {
		t.Errorf("%d blocks of 256 are left after %d deaths of %d producers", got, deaths, childProducers)
	} else {
		t.Logf("%d blocks of 256 are left after %d deaths of %d producers", got, deaths, childProducers)
	}
	if err := b.Resize(128 * 4096); err != nil && !strings.Contains(err.Error(), "not supported") {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buffer")
	b := mustNew(t, Options{Bytes: 64 * 4096, File: path})
	if _, err := New(Options{Bytes: 64 * 4096, File: path}); err == nil {
		t.Error("a second buffer was made in the same file")
	}
	other, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, other.Writer(0), []byte("from there"))
	write(t, b.Writer(0), []byte("from here"))
	if got := fmt.Sprintf("%s", records(t, b.Snapshot()[0])); got != "[from there from here]" {
		t.Errorf("snapshot %s", got)
	}
	if err := other.Resize(32 * 4096); err == nil || !strings.Contains(err.Error(), "only the process") {
		t.Errorf("Resize by another: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	write(t, b.Writer(0), []byte("still open"))
	for _, bad := range []func([]byte) []byte{
		func(p []byte) []byte { return nil },
		func(p []byte) []byte { return p[:100] },
		func(p []byte) []byte { return p[:len(p)-1] },
		func(p []byte) []byte { p[0]++; return p },
		func(p []byte) []byte { p[8]++; return p },
		func(p []byte) []byte { binary.LittleEndian.PutUint32(p[28:], 1<<31); return p },
	} {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		broken := filepath.Join(t.TempDir(), "broken")
		if err := os.WriteFile(broken, bad(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Recover(broken); err == nil || !strings.Contains(err.Error(), broken) {
			t.Errorf("Recover of a broken file: %v", err)
		}
		if _, err := Open(broken); err == nil {
			t.Error("Open of a broken file succeeds")
		}
	}
}

// FuzzRecover reads files in which anything may be written: no crash, no endless loop, nothing that does not fit.
func FuzzRecover(f *testing.F) {
	dir := f.TempDir()
	seed := filepath.Join(dir, "seed")
	b, err := newBuffer(Options{Bytes: 8 * 64, BlockBytes: 64, MaxBytes: 8 * 64, Slots: 2, tiny: true, File: seed})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 60 {
		res, err := b.Writer(i % 2).Reserve(i % 13)
		if err != nil {
			f.Fatal(err)
		}
		if i%17 != 0 {
			res.Commit()
		}
	}
	whole, err := os.ReadFile(seed)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, uint16(0), []byte{})
	f.Add(whole, uint16(128), bytes.Repeat([]byte{0xff}, 8))
	f.Add(whole, uint16(b.shape.sizes().metas), bytes.Repeat([]byte{0xff, 0}, 16))
	f.Add(whole, uint16(b.shape.sizes().blocks), bytes.Repeat([]byte{0xa5}, 64))
	f.Fuzz(func(t *testing.T, file []byte, at uint16, patch []byte) {
		copy(file[min(int(at), len(file)):], patch)
		path := filepath.Join(t.TempDir(), "buffer")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		blocks, _, err := Recover(path)
		if err != nil {
			return
		}
		total := 0
		for _, k := range blocks {
			total += len(k.Data)
			k.Records(func(p []byte) bool { return len(p) < len(file) })
		}
		if total > 2*len(file) {
			t.Errorf("%d bytes out of a file of %d", total, len(file))
		}
		// What others scribble must not crash a writer or a reader either.
		shared, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		_ = shared.Writer(0).Write([]byte("x"))
		shared.Seal()
		r := shared.NewReader()
		for range 100 {
			if _, ok := r.Next(); !ok {
				break
			}
		}
		shared.Snapshot()
		shared.Stats()
	})
}
