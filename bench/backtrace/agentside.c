//go:build ignore

/* agentside: the agent's own walk, delta and ring, built as the agent is, on a ring in private memory that a
 * benchmark empties. The functions measured are those of unwind/ and concurrentring/, not copies. */
#define _GNU_SOURCE /* dl_phdr_info, in agent/elf.h */
#include "agent/real.h" /* names of hooks */
#include "agent/emit.h"

static int hb_thread_ready(struct hb_tls *t) {
  (void)t;
  return 1;
}

static uint64_t joined; /* of the verified walks */

extern char etext[] __attribute__((visibility("hidden")));

/* Stack bounds of the calling thread, and where the vDSO is. Returns 0 when all is ready. */
HB_EXPORT int side_begin(uintptr_t lo, uintptr_t hi, uintptr_t vdso) {
  static struct hb_header header;
  static struct hb_proc proc;
  static struct hb_thread slot;
  struct hb_tls *t = hb_self();
  hb_vdso_clock = (int (*)(int, struct hb_timespec *))hb_vdso_find(vdso, HB_VDSO_CLOCK);
  hb.header = &header;
  hb.slot = &proc;
  hb.ring_count = 8;
  hb.ring_bytes = 1 << 20;
  hb.subbufs = hb_pages(4096);
  hb.ring = hb_pages(hb.ring_count * hb.ring_bytes);
  hb.self_lo = (uintptr_t)__ehdr_start;
  hb.self_hi = (uintptr_t)etext;
  hb_store_relaxed(&header.recording, 1u);
  t->slot = &slot;
  t->uid = 1;
  t->announced = 1;
  t->need_full = 1;
  t->stack_lo = lo;
  t->stack_hi = hi;
  t->local = hb_pages(sizeof *t->local);
  return !t->local || !hb.ring || !hb.subbufs || !hb_vdso_clock;
}

/* With unwind tables from a region as the collector publishes it (slot 0, process 1), or without. */
HB_EXPORT void side_tables(const void *region, uint64_t bytes) {
  hb.uid = 1;
  hb_tables.base = NULL;
  hb_store_relaxed(&hb_tables.modules, NULL);
  if (region) hb_tables_open(&hb_tables, region, bytes);
  hb_self()->need_full = 1;
}

/* A walk that meets no remembered stack. Returns the number of frames. */
HB_EXPORT HB_NOINLINE uint32_t side_walk(void) {
  struct hb_tls *t = hb_self();
  struct hb_stack_taken x;
  t->local->last.solid = 0;
  hb_stack_hook(t, HB_FRAME, &x);
  return x.w.n;
}

/* A walk until the last stack is met, which is proved to lead on as it did, and what was new remembered. */
HB_EXPORT HB_NOINLINE uint32_t side_verify(void) {
  struct hb_tls *t = hb_self();
  struct hb_stack_taken x;
  t->need_full = 0;
  hb_stack_hook(t, HB_FRAME, &x);
  if (x.remember) hb_memory_keep(&t->local->last, &x.u, &x.c, &t->local->scratch, &x.v);
  joined += x.v.end == HB_WALK_JOINED;
  return x.w.n;
}

/* What a verified walk cannot do without: comparing the words behind the frames that it does not walk. Returns the remembered stack's
 * frames, 0 when a word has changed. */
HB_EXPORT HB_NOINLINE uint32_t side_holds(void) {
  const struct hb_memory *m = &hb_self()->local->last;
  return m->depth > 3 && hb_memory_holds(m, m->depth - 4) ? m->depth : 0;
}
HB_EXPORT uint64_t side_joined(void) { return joined; }

/* Forget the rules of the return addresses of the walk before, and nothing else; by side_walk's frames. */
HB_EXPORT HB_NOINLINE void side_forget(uint32_t frames) {
  struct hb_local *l = hb_self()->local;
  for (uint32_t i = 0; i < frames && i < HB_MAX_FRAMES; i++)
    hb_store_relaxed(hb_rule_slot(&l->rules, l->scratch.f[i].pc & HB_PC_BITS), 0);
  l->rules.last = NULL;
}

/* What a hook with something to say does: gate passed, walk, clock, delta, record into the ring. */
HB_EXPORT HB_NOINLINE void side_sample(void) {
  struct hb_tls *t = hb_self();
  hb_saw_depth(t, HB_CFA);
  hb_emit_sample(t, HB_SAMPLE_SYNC, 1, 0, NULL, HB_FRAME, 0);
  hb_compiler_barrier(); /* no tail call: the frame must still be there */
}

/* The collector's part: what was written has been read. Returns the bytes there were. */
HB_EXPORT uint64_t side_drain(void) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < hb.ring_count; i++) {
    uint64_t head = hb_load_acquire(&hb.subbufs[i].head), tail = hb_load_relaxed(&hb.subbufs[i].tail);
    bytes += head - tail;
    hb_store_release(&hb.subbufs[i].tail, head);
  }
  return bytes;
}

HB_EXPORT uint32_t side_lost(void) { return hb_load_relaxed(&hb_self()->slot->lost); }

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
  (void)hb_emit_unwound;
  (void)hb_sample_inside;
  (void)hb_points_begin;
  (void)hb_objects_visit;
}
