/* put.h: records into the session's ring, by the protocol of concurrentring/claim.h. */
#ifndef HB_GO_PUT_H
#define HB_GO_PUT_H

#include "concurrentring/claim.h"
#include "goruntime/ground.h"

/* The lock's holder is the thread slot that stands for the runtime: it has a slot, by which the collector finds and
 * frees what a killed process held. Two threads of the process may thus hold two sub-buffers under one name.
 *
 * Writes `fixed` bytes of rec, then n program counters, root first, from a leaf-first array. signal-safe */
static void hb_go_put(struct hb_rec *rec, u32 fixed, const u64 *pcs, u32 n) {
  struct hb_header *h = hb_header();
  const struct hb_ring r = {
      (struct hb_subbuf *)(hb_go.segment + h->ring_ctl_off),
      (char *)(hb_go.segment + h->ring_data_off),
      h->ring_bytes,
      h->ring_count,
  };
  u32 at = rec->thread % r.count, bytes = fixed + n * 8, holds = 0;
  u64 head;
  rec->bytes = bytes;
  char *to = hb_ring_claim(&r, bytes, hb_go.uid, &at, &head, &holds);
  if (!to) {
    struct hb_proc *p = (struct hb_proc *)(hb_go.segment + h->procs_off) + hb_go.proc_slot;
    hb_add_relaxed(&p->lost, 1u);
    hb_add_relaxed(&hb_table()->lost, 1u);
    return;
  }
  u64 *d = (u64 *)to;
  const u64 *s = (const u64 *)rec;
  for (u32 i = 0; i < fixed / 8; i++) d[i] = s[i];
  for (u32 i = 0; i < n; i++) d[fixed / 8 + i] = pcs[n - 1 - i];
  hb_ring_publish(&r, at, head, bytes, &holds);
}

#endif
