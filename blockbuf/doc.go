// Package blockbuf keeps the newest continuous history of small records in a buffer of fixed size.
//
// The buffer is cut into equal blocks. Each producer slot fills one block of its own; a full block is left, and
// the slot opens another one, taking the memory of the oldest. Every block that is opened gets the next global
// position, so positions order the history, however unevenly the slots produce, and what is kept are always the
// newest blocks of all slots together: a slot that is quiet costs one block at most, not a share.
//
//	buf, err := blockbuf.New(blockbuf.Options{Bytes: 12 << 20, Slots: runtime.NumCPU()})
//	w := buf.Writer(0)          // a handle per producer, on a slot
//	err = w.Write(record)       // a copy, or:
//	res, err := w.Reserve(n)    // room in the buffer itself,
//	encode(res.Data)            // filled in place,
//	res.Commit()                // and shown
//
//	for _, blk := range buf.Snapshot() {
//		blk.Records(func(p []byte) bool { …; return true })
//	}
//
// It is for flight recorders, tracers and logs of which only the newest matters: where a ring for each core would keep a busy
// core's last second and an idle core's last hour, and one ring for all would make the cores wait for one another.
//
// # Slots
//
// A slot is a block that is being filled. Take as many as there are processors that write at a time, and give each goroutine or
// thread a [Writer] on one of them: writers of a slot share its block, which is safe, and costs when they really write at the
// same time. Go does not say which processor a goroutine runs on; dealing writers out in turn does.
//
// # What is promised
//
// Producers never wait, neither for readers nor for one another: a write is one compare-and-swap, one addition
// and the copying, and once in a block's worth of writes some more of these. The newest record is never refused in
// favour of an older one. Records of one [Writer] keep their order, within a block and across blocks. A record
// is read whole or not at all, never before its Commit, and never twice by one [Reader]. A reader that is too slow loses the
// oldest positions and is told how many. A producer that stops for ever in the middle of a record, or dies,
// costs one block.
//
// # Design
//
// This is BTrace (Wang et al., "Enabling Efficient Mobile Tracing with BTrace", ASPLOS '25); sections are named
// next to the mechanisms. Shared words hold a position in 40 bits and a small number in 24.
//
//   - A block has two words, Allocated and Confirmed: its position and bytes given out, its position and bytes
//     whose records are complete (3.2). Writers of one slot share its block: each takes room by compare-and-swap
//     on Allocated and adds to Confirmed when it is done, in any order. A block whose Confirmed is its size is
//     complete, and only such a block may be overwritten: claiming it is a compare-and-swap on Confirmed.
//   - A slot's word names the position and block it fills, as the paper's core-local ratio_and_pos (3.3). Whoever
//     finds no room closes the block, that is allocates the rest, as a dummy; opens another; and swings the word.
//   - Positions are given out by an addition on one global word (3.3). The active table has an entry for each of
//     the last A = 16 × slots of them: opening a position replaces the one A before, and the block that lags is
//     closed (3.4), so that what a quiet slot left partly filled is complete long before its turn to be overwritten.
//   - Which memory: see [Mapping]. In the paper's, position G has block G mod N, and is skipped if the one before
//     it in its entry is not complete (3.5). In ours a block is taken in turn when everything else is ready,
//     and one that is not complete is passed over.
//   - Readers copy and then look whether the block was claimed meanwhile (3.6). They write nothing, except that
//     Seal closes blocks, as any producer might. They read blocks that are not complete record by record.
//   - Resize changes how many blocks take turns. A block is given back to the system when it could have been
//     overwritten: complete, hence without writers. That is the epoch, nobody announces or counts anything (4).
//
// # Memory order
//
// All shared words are Go atomics, sequentially consistent. Record bytes are plain memory between them: a writer's
// bytes come before its addition to Confirmed, which comes before any claim; a claim comes before the bytes that
// overwrite, which come before a reader's second look if the reader saw one of them. The second look thus
// proves the copy. Committed headers are stored after their bytes, for readers of blocks that are not complete.
// Where processors load out of order, and under the race detector, copies are made of atomic words.
//
// # Limits
//
// Linux only: memory is mapped, and given back, by its system calls. Blocks of 4 to 64 KiB, 2^24 of them; 2^40 positions in a buffer's life (4.5 PB of 4 KiB blocks), after which
// writes fail with ErrFull. 4 bytes of header and up to 3 of padding a record, 32 bytes of memory a block next to
// the blocks. Writes fail with ErrHeld if every block that could be overwritten holds a record that is not committed.
// A buffer in a file survives the death of processes, not that of the machine; whoever can write the file
// can make its users read nonsense, not crash: except by truncating it.
//
// docs/design/blockbuf.md says how this differs from the paper, what was measured, and how it was checked.
package blockbuf
