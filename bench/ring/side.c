//go:build ignore

/* side: the agent's own ring producer (concurrentring/producer.h), built as the agent is, behind three functions. What
 * it writes is made up, but has the form that the agent's records have. */
#define _GNU_SOURCE /* dl_phdr_info, in agent/elf.h */
#include "agent/emit.h"

static int hb_thread_ready(struct hb_tls *t) {
  (void)t;
  return 1;
}

/* Take up the session whose segment is mapped there, as a process with a number of its own. Returns 0, or which of
 * the layout's promises does not hold. */
HB_EXPORT int side_open(void *segment, uint32_t pid) {
  struct hb_header *h = segment;
  if (h->magic != HB_MAGIC) return 1;
  if (h->version != HB_ABI_VERSION) return 2;
  hb.header = h;
  hb.base = segment;
  hb.procs = (struct hb_proc *)(hb.base + h->procs_off);
  hb.threads = (struct hb_thread *)(hb.base + h->threads_off);
  hb.subbufs = (struct hb_subbuf *)(hb.base + h->ring_ctl_off);
  hb.ring = hb.base + h->ring_data_off;
  hb.ring_count = h->ring_count;
  hb.ring_bytes = h->ring_bytes;
  uint32_t uid = hb_add_relaxed(&h->next_proc_uid, 1u) + 1;
  if (uid > h->procs_cap) return 3;
  hb.uid = uid;
  hb.slot_index = uid - 1;
  hb.slot = &hb.procs[uid - 1];
  hb.slot->pid = hb.slot->host_pid = pid;
  hb.slot->start_ns = 1;
  hb_store_relaxed(&hb.slot->uid, uid);
  hb_store_release(&hb.slot->state, (uint32_t)HB_PROC_LIVE);
  hb_add_relaxed(&h->procs_high, 1u);
  return 0;
}

/* The calling thread joins: its THREAD record, the first one also the PROC record and one of a MODULE that covers all
 * addresses of side_sample. now: CLOCK_MONOTONIC ns. Returns its uid, 0 when there is no slot left. */
HB_EXPORT uint32_t side_join(uint64_t now, int first) {
  struct hb_tls *t = hb_self();
  uint32_t uid = hb_add_relaxed(&hb.header->next_thread_uid, 1u) + 1;
  if (uid > hb.header->threads_cap) return 0;
  struct hb_thread *s = &hb.threads[uid - 1];
  t->uid = uid;
  t->slot = s;
  t->subbuf = uid % hb.ring_count;
  s->proc = hb.slot_index;
  s->proc_uid = hb.uid;
  s->tid = uid;
  s->start_ns = now;
  hb_store_release(&s->uid, uid);
  hb_add_relaxed(&hb.header->threads_high, 1u);
  struct hb_rec_thread r = {0};
  hb_rec_init(&r.rec, HB_REC_THREAD, 0, 0, now);
  r.proc_uid = hb.uid;
  r.tid = uid;
  r.start_ns = now;
  r.name[0] = 'w';
  hb_put(t, &r.rec, sizeof r, NULL, 0);
  if (first) {
    struct hb_rec_proc p = {0};
    hb_rec_init(&p.rec, HB_REC_PROC, 0, 0, now);
    p.proc_uid = hb.uid;
    p.proc_slot = hb.slot_index;
    p.pid = hb.slot->pid;
    hb_put(t, &p.rec, sizeof p, NULL, 0);
    struct {
      struct hb_rec_module r;
      char path[8];
    } m = {0};
    hb_rec_init(&m.r.rec, HB_REC_MODULE, 0, 0, now);
    m.r.proc_uid = hb.uid;
    m.r.path_bytes = 4;
    m.r.lo = 0x400000;
    m.r.hi = 0x800000;
    m.path[0] = '/', m.path[1] = 'm', m.path[2] = 'o', m.path[3] = 'd';
    hb_put(t, &m.r.rec, sizeof m, NULL, 0);
  }
  t->need_full = 1;
  return uid;
}

/* A sample of a stack of 16 frames whose last two change each time, among 48 functions: 88 bytes, 200 when the stack
 * must stand alone. */
HB_EXPORT void side_sample(uint64_t now) {
  enum { DEPTH = 16, CHANGED = 2 };
  struct hb_tls *t = hb_self();
  struct hb_frame f[DEPTH]; /* leaf first */
  struct hb_rec_sample r = {0};
  uint32_t n = t->need_full ? DEPTH : CHANGED, number = t->seq + 1;
  for (uint32_t i = 0; i < n; i++) {
    uint64_t which = i < CHANGED ? 16 + (number * 7 + i) % 48 : i;
    f[i].pc = (uint64_t)HB_PC_TABLE << HB_PC_SHIFT | (0x400000 + which * 64);
  }
  hb_rec_init(&r.rec, HB_REC_SAMPLE, 0, 0, now);
  r.kind = HB_SAMPLE_SYNC;
  r.stack = (struct hb_stack){.same = (uint16_t)(DEPTH - n), .count = (uint16_t)n, .flags = t->need_full ? HB_STACK_FULL : 0};
  t->need_full = 0;
  hb_put(t, &r.rec, sizeof r, f, n);
}

/* Referred to by the hooks of agent/ that are not part of this. */
static uint64_t hb_alloc_gap(struct hb_tls *t) {
  (void)t;
  return 0;
}
HB_EXPORT void side_unused(void) {
  (void)hb_alloc_gap;
  (void)hb_sample_hook;
  (void)hb_emit_interval;
  (void)hb_emit_release;
}
