/* producer.h: the writing side of the ring: copy one whole record into one of K sub-buffers, or give up.
 *
 * State of a sub-buffer as producers see it (segment/layout.h, struct hb_subbuf):
 *
 *      lock 0 --CAS by a producer--> lock uid: copy at head, publish head (release) --store 0--> lock 0
 *
 * 1. A producer never waits: lock taken or no room means the next sub-buffer, K tried means dropped-newest,
 *    counted in the thread's slot, in the process's, and through `seq` in the stream itself.
 * 2. The lock is held for the copy only, never across a walk or a clock.
 * 3. A thread interrupted by the sampling signal while it holds a sub-buffer cannot deadlock with its own
 *    handler: the handler finds the lock taken and moves on.
 * 4. Ordering: records are plain stores, head is stored with release and loaded by the reader with acquire;
 *    tail is stored by the reader with release after it has copied, and loaded here with acquire.
 * 5. head and tail come from shared memory that a broken target may have scribbled on: positions are masked,
 *    so a wild value costs records, never a write outside the ring. */
#ifndef HB_PRODUCER_H
#define HB_PRODUCER_H

#include "agent/state.h"

/* Write `fixed` bytes from rec, then `n` program counters taken root-first from a leaf-first array: frames[n-1]
 * is written first; then `more_n` plain ones likewise. rec->bytes is set here. Returns 0 when dropped. signal-safe */
static int hb_ring_put_two(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *frames, uint32_t n,
                           const uint64_t *more, uint32_t more_n) {
  uint32_t bytes = fixed + (n + more_n) * 8, tries = hb.ring_count, at = t->subbuf;
  uint64_t cap = hb.ring_bytes;
  rec->bytes = bytes;
  for (; tries; tries--, at++) {
    if (at >= hb.ring_count) at = 0;
    struct hb_subbuf *b = &hb.subbufs[at];
    uint32_t free_ = 0;
    t->holds = at + 1; /* before the CAS: what a siglongjmp out of a handler leaves behind is found again */
    if (hb_load_relaxed(&b->lock) != 0 || !hb_cas_seq(&b->lock, &free_, t->uid ? t->uid : HB_UID_CLAIMING)) continue;
    uint64_t head = hb_load_relaxed(&b->head), tail = hb_load_acquire(&b->tail);
    uint64_t off = head & (cap - 1) & ~7ull, to_end = cap - off;
    uint64_t need = bytes <= to_end ? bytes : to_end + bytes;
    if (head - tail > cap || cap - (head - tail) < need) { /* full, or control words that make no sense */
      hb_store_release(&b->lock, 0u);
      t->holds = 0;
      continue;
    }
    char *base = hb.ring + (uint64_t)at * cap;
    if (bytes > to_end) { /* a record never wraps: fill the end. A gap of 8 bytes still holds bytes and type. */
      struct hb_rec *pad = (struct hb_rec *)(base + off);
      pad->bytes = (uint32_t)to_end;
      pad->type = HB_REC_PAD;
      head += to_end;
      off = 0;
    }
    uint64_t *d = (uint64_t *)(base + off);
    const uint64_t *s = (const uint64_t *)rec;
    for (uint32_t i = 0; i < fixed / 8; i++) *d++ = s[i];
    for (uint32_t i = n; i > 0; i--) *d++ = frames[i - 1].pc;
    for (uint32_t i = more_n; i > 0; i--) *d++ = more[i - 1];
    hb_store_release(&b->head, head + bytes);
    hb_store_release(&b->lock, 0u);
    t->holds = 0;
    t->subbuf = at;
    return 1;
  }
  t->holds = 0;
  return 0;
}

HB_INLINE int hb_ring_put(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *frames, uint32_t n) {
  return hb_ring_put_two(t, rec, fixed, frames, n, NULL, 0);
}

#endif
