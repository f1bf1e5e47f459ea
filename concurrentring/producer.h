/* producer.h: the agent's records go into the ring: copied whole, or dropped and counted. The protocol is in claim.h. */
#ifndef HB_PRODUCER_H
#define HB_PRODUCER_H

#include "agent/state.h"
#include "concurrentring/claim.h"

/* Write `fixed` bytes from rec, then `n` program counters taken root-first from a leaf-first array: frames[n-1]
 * is written first; then `more_n` plain ones likewise. rec->bytes is set here. Returns 0 when dropped. signal-safe */
static int hb_ring_put_two(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *frames, uint32_t n,
                           const uint64_t *more, uint32_t more_n) {
  uint32_t bytes = fixed + (n + more_n) * 8, at = t->subbuf;
  uint64_t head;
  const struct hb_ring r = {hb.subbufs, hb.ring, hb.ring_bytes, hb.ring_count};
  rec->bytes = bytes;
  char *to = hb_ring_claim(&r, bytes, t->uid ? t->uid : HB_UID_CLAIMING, &at, &head, &t->holds);
  if (!to) return 0;
  uint64_t *d = (uint64_t *)to;
  const uint64_t *s = (const uint64_t *)rec;
  for (uint32_t i = 0; i < fixed / 8; i++) *d++ = s[i];
  for (uint32_t i = n; i > 0; i--) *d++ = frames[i - 1].pc;
  for (uint32_t i = more_n; i > 0; i--) *d++ = more[i - 1];
  hb_ring_publish(&r, at, head, bytes, &t->holds);
  t->subbuf = at;
  return 1;
}

HB_INLINE int hb_ring_put(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *frames, uint32_t n) {
  return hb_ring_put_two(t, rec, fixed, frames, n, NULL, 0);
}

#endif
