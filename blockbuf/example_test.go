package blockbuf_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/hbtrace/hbtrace/blockbuf"
)

// A flight recorder: many goroutines write all the time, and when something has happened one looks at what came last. The
// busy one does not push out what the quiet one wrote.
func Example() {
	buf, err := blockbuf.New(blockbuf.Options{Bytes: 256 << 10, Slots: 4})
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()

	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			w := buf.Writer(i) // one handle for each goroutine; goroutines may share a slot
			for n := range 100 * (i + 1) {
				if err := w.Write(fmt.Appendf(nil, "worker %d, step %d", i, n)); err != nil {
					log.Fatal(err)
				}
			}
		})
	}
	wg.Wait()

	records := 0
	for _, block := range buf.Snapshot() { // oldest first; nobody has to stop writing
		block.Records(func(record []byte) bool {
			records++
			return true
		})
	}
	fmt.Println(records, "records")
	// Output: 1000 records
}

// A record of known size is made in the buffer itself, without a copy.
func ExampleWriter_Reserve() {
	buf, err := blockbuf.New(blockbuf.Options{Bytes: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()

	room, err := buf.Writer(0).Reserve(8)
	if err != nil {
		log.Fatal(err)
	}
	binary.LittleEndian.PutUint64(room.Data, 42)
	room.Commit() // until then nobody sees it

	for _, block := range buf.Snapshot() {
		block.Records(func(record []byte) bool {
			fmt.Println(binary.LittleEndian.Uint64(record))
			return true
		})
	}
	// Output: 42
}

// A consumer takes what is new from time to time. Seal closes the blocks that are being filled, so that it gets
// everything up to now; Lost says how many blocks were overwritten before it came.
func ExampleReader() {
	buf, err := blockbuf.New(blockbuf.Options{Bytes: 64 << 10})
	if err != nil {
		log.Fatal(err)
	}
	defer buf.Close()

	w, r := buf.Writer(0), buf.NewReader()
	for round := range 2 {
		for i := range 3 {
			w.Write(fmt.Appendf(nil, "%d.%d", round, i))
		}
		buf.Seal()
		for block, ok := r.Next(); ok; block, ok = r.Next() {
			block.Records(func(record []byte) bool {
				fmt.Printf("%s ", record)
				return true
			})
		}
		fmt.Println("lost:", r.Lost())
	}
	// Output:
	// 0.0 0.1 0.2 lost: 0
	// 1.0 1.1 1.2 lost: 0
}

// With a file, what was written is there when the writer is not any more.
func ExampleRecover() {
	dir, err := os.MkdirTemp("", "blockbuf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "history")
	buf, err := blockbuf.New(blockbuf.Options{Bytes: 64 << 10, File: file})
	if err != nil {
		log.Fatal(err)
	}
	buf.Writer(0).Write([]byte("the last words"))
	// The process may be killed here, by SIGKILL for instance.

	blocks, _, err := blockbuf.Recover(file)
	if err != nil {
		log.Fatal(err)
	}
	for _, block := range blocks {
		block.Records(func(record []byte) bool {
			fmt.Printf("%s\n", record)
			return true
		})
	}
	// Output: the last words
}
