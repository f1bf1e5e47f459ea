/* hashed.h: the state of a thread in an agent that was mapped into a running program (HB_ATTACHED). No loader gives it thread-local
 * storage, so it finds a thread's state by the thread pointer, which costs as much as __thread does.
 *
 * A thread pointer is used again when its thread has ended: glibc keeps stacks. So the entry carries the thread id as well, and is compared
 * with the one that the C library keeps (hb_join.tid_offset): another thread finds it zeroed. A fork child keeps what it
 * inherits, as thread-local storage would, until hb_after_fork puts it right. Entries are never taken out while their
 * thread lives. */
#ifndef HB_HASHED_H
#define HB_HASHED_H

static struct hb_join hb_join;


struct hb_entry {
  _Atomic uintptr_t tp; /* 0: free */
  _Atomic uint32_t tid;
  uint32_t pad;
  struct hb_tls tls;
};
#define HB_ENTRIES_LOG2 15
#define HB_ENTRIES (1u << HB_ENTRIES_LOG2)
#define HB_ENTRY_PROBES 64u
static struct hb_entry hb_entries[HB_ENTRIES];
/* Of threads that find no entry: they are not recorded. */
static struct hb_tls hb_crowded = {.flags = HB_TLS_DEAD, .alloc_left = UINT64_MAX / 2, .alloc_given = UINT64_MAX / 2};

HB_INLINE uint32_t hb_entry_of(uintptr_t tp) { return (uint32_t)((tp * 0x9e3779b97f4a7c15ull) >> (64 - HB_ENTRIES_LOG2)); }

/* What the C library believes its thread id to be: a vfork child has its parent's. signal-safe */
HB_INLINE uint32_t hb_known_tid(uintptr_t tp) { return *(const volatile uint32_t *)(tp + hb_join.tid_offset); }

/* hook path, signal-safe */
static HB_NOINLINE struct hb_tls *hb_self_slow(uintptr_t tp) {
  uint32_t at = hb_entry_of(tp), tid = hb_known_tid(tp);
  struct hb_entry *e = NULL;
  for (uint32_t i = 0; i < HB_ENTRY_PROBES && !e; i++) {
    struct hb_entry *x = &hb_entries[(at + i) % HB_ENTRIES];
    uintptr_t none = hb_load_relaxed(&x->tp);
    if (none == 0) hb_cas_seq(&x->tp, &none, tp);
    if (hb_load_relaxed(&x->tp) == tp) e = x;
  }
  for (uint32_t i = 0; i < HB_ENTRY_PROBES && !e; i++) { /* threads that said goodbye leave theirs */
    struct hb_entry *x = &hb_entries[(at + i) % HB_ENTRIES];
    uintptr_t old = hb_load_relaxed(&x->tp);
    if (x->tls.flags & HB_TLS_DEAD && hb_cas_seq(&x->tp, &old, tp)) e = x;
  }
  if (!e) return &hb_crowded;
  if (hb_load_relaxed(&e->tid) != tid) {
    if (!hb_load_relaxed(&hb.on) || hb_load_relaxed(&hb.wiped->alive)) memset(&e->tls, 0, sizeof e->tls);
    hb_store_relaxed(&e->tid, tid);
  }
  return &e->tls;
}

HB_INLINE struct hb_tls *hb_self(void) {
  uintptr_t tp = hb_thread_pointer();
  struct hb_entry *e = &hb_entries[hb_entry_of(tp)];
  if (HB_LIKELY(hb_load_relaxed(&e->tp) == tp && hb_load_relaxed(&e->tid) == hb_known_tid(tp))) return &e->tls;
  return hb_self_slow(tp);
}

#endif
