/* claim.h: the writing side of the ring: room for one whole record in one of K sub-buffers, or none. The agent
 * (producer.h) and the code in Go programs (goruntime/put.h) both write through it.
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
#ifndef HB_CLAIM_H
#define HB_CLAIM_H

#include <stddef.h>

#include "segment/atomic.h"
#include "segment/layout.h"

/* The ring as one process has it mapped; copied once, checked. */
struct hb_ring {
  struct hb_subbuf *subbufs;
  char *data;
  uint64_t bytes; /* of one sub-buffer, a power of two */
  uint32_t count; /* K */
};

/* Takes a sub-buffer, beginning with number *at, in which `bytes` fit. Returns where the record goes; *at is the
 * sub-buffer's number and *head its head before the record. *holds is 1 + the number of the sub-buffer that is
 * held or about to be. NULL: none has room. signal-safe */
HB_INLINE char *hb_ring_claim(const struct hb_ring *r, uint32_t bytes, uint32_t uid, uint32_t *at, uint64_t *head,
                              uint32_t *holds) {
  uint32_t tries = r->count, i = *at;
  uint64_t cap = r->bytes;
  for (; tries; tries--, i++) {
    if (i >= r->count) i = 0;
    struct hb_subbuf *b = &r->subbufs[i];
    uint32_t free_ = 0;
    *holds = i + 1; /* before the CAS: what a siglongjmp out of a handler leaves behind is found again */
    if (hb_load_relaxed(&b->lock) != 0 || !hb_cas_seq(&b->lock, &free_, uid)) continue;
    uint64_t at_head = hb_load_relaxed(&b->head), tail = hb_load_acquire(&b->tail);
    uint64_t off = at_head & (cap - 1) & ~7ull, to_end = cap - off;
    uint64_t need = bytes <= to_end ? bytes : to_end + bytes;
    if (at_head - tail > cap || cap - (at_head - tail) < need) { /* full, or control words that make no sense */
      hb_store_release(&b->lock, 0u);
      *holds = 0;
      continue;
    }
    char *base = r->data + (uint64_t)i * cap;
    if (bytes > to_end) { /* a record never wraps: fill the end. A gap of 8 bytes still holds bytes and type. */
      struct hb_rec *pad = (struct hb_rec *)(base + off);
      pad->bytes = (uint32_t)to_end;
      pad->type = HB_REC_PAD;
      at_head += to_end;
      off = 0;
    }
    *at = i;
    *head = at_head;
    return base + off;
  }
  *holds = 0;
  return NULL;
}

/* Publishes the record that was copied to where hb_ring_claim said, and lets the sub-buffer go. signal-safe */
HB_INLINE void hb_ring_publish(const struct hb_ring *r, uint32_t at, uint64_t head, uint32_t bytes, uint32_t *holds) {
  struct hb_subbuf *b = &r->subbufs[at];
  hb_store_release(&b->head, head + bytes);
  hb_store_release(&b->lock, 0u);
  *holds = 0;
}

#endif
