/* local.h: private memory of recorded threads (struct hb_local), by thread slot.
 *
 * It comes in slabs of 32, since a mapping of its own for each thread costs two system calls that stop all others' page
 * faults, and an interrupt of every processor when it goes. A slab's pages are not touched before there is something to keep;
 * they serve the next thread in the slot, and all but the first slabs are given back when none of their 32 is in use. */
#ifndef HB_LOCAL_H
#define HB_LOCAL_H

#include "agent/state.h"
#include "unwind/stack.h"

#define HB_SLABS_KEPT 2 /* of the lowest slots */

static struct hb_slab *hb_slab_of(uint32_t slot) { return &hb.slabs[slot / HB_SLAB]; }

/* NULL: no memory. hook path */
static struct hb_local *hb_slab_base(struct hb_slab *sl) {
  struct hb_local *base = hb_load_acquire(&sl->base), *none = NULL;
  if (base) return base;
  if (!(base = hb_pages(HB_SLAB * sizeof *base))) return NULL;
  hb_sys3(HB_SYS_madvise, base, HB_SLAB * sizeof *base, HB_MADV_NOHUGEPAGE); /* or the first touch takes 2 MiB */
  if (hb_cas_seq(&sl->base, &none, base)) return base;
  hb_unmap(base, HB_SLAB * sizeof *base);
  return none;
}

#define HB_ALONE_BYTES offsetof(struct hb_local, held)

/* For the thread that has claimed the slot; *flags gets HB_TLS_FRESH if nobody has touched it, and HB_TLS_ALONE. NULL: no
 * memory. hook path */
static struct hb_local *hb_local_take(uint32_t slot, uint32_t *flags) {
  struct hb_slab *sl = hb_slab_of(slot);
  uint32_t users = hb_load_relaxed(&sl->users), bit = 1u << slot % HB_SLAB;
  *flags = HB_TLS_FRESH | HB_TLS_ALONE;
  /* Two threads with one memory would crash. So it is not the slot that decides, which anybody in the session can make free. */
  if (atomic_fetch_or_explicit(&sl->taken, bit, memory_order_acquire) & bit) return hb_pages(HB_ALONE_BYTES);
  do {
    if (users & HB_SLAB_BUSY) { /* never wait */
      atomic_fetch_and_explicit(&sl->taken, ~bit, memory_order_relaxed);
      return hb_pages(HB_ALONE_BYTES);
    }
  } while (!hb_cas_seq(&sl->users, &users, users + 1));
  struct hb_local *l = hb_slab_base(sl);
  if (!l) {
    hb_sub_relaxed(&sl->users, 1u);
    atomic_fetch_and_explicit(&sl->taken, ~bit, memory_order_relaxed);
    return hb_pages(HB_ALONE_BYTES); /* a limit on address space */
  }
  *flags = HB_TLS_FRESH;
  l += slot % HB_SLAB;
  if (atomic_fetch_or_explicit(&sl->used, bit, memory_order_relaxed) & bit) { /* by another thread, or in a parent process */
    *flags = 0;
    l->last.depth = 0;
    if (hb_load_relaxed(&hb.gil.at)) memset(&l->python.gil, 0, sizeof l->python.gil);
    if (l->holds) {
      for (int i = 0; i < HB_HELD; i++) l->holds->e[i].object = 0;
      l->holds->last.depth = 0;
    }
  }
  return l;
}

/* flags: the thread's. Before the slot is let go. hook path */
static void hb_local_give(uint32_t slot, struct hb_local *l, uint32_t flags) {
  struct hb_slab *sl = hb_slab_of(slot);
  struct hb_local *base = hb_load_acquire(&sl->base);
  uint32_t bit = 1u << slot % HB_SLAB, none = 0;
  if (flags & HB_TLS_ALONE) {
    hb_unmap(l, HB_ALONE_BYTES);
    return;
  }
  if (flags & HB_TLS_FRESH) atomic_fetch_and_explicit(&sl->used, ~bit, memory_order_relaxed);
  atomic_fetch_and_explicit(&sl->taken, ~bit, memory_order_release);
  if (hb_sub_relaxed(&sl->users, 1u) != 1 || slot / HB_SLAB < HB_SLABS_KEPT || !hb_load_relaxed(&sl->used)) return;
  if (!hb_cas_seq(&sl->users, &none, HB_SLAB_BUSY)) return;
  if (!hb_is_err(hb_sys3(HB_SYS_madvise, base, HB_SLAB * sizeof *base, HB_MADV_DONTNEED))) hb_store_relaxed(&sl->used, 0u);
  hb_store_release(&sl->users, 0u);
}

/* In a fork child, which has one thread: nobody else is a user. init only */
static void hb_local_forked(void) {
  for (uint32_t i = 0; i < (hb.threads_cap + HB_SLAB - 1) / HB_SLAB; i++)
    if (hb_load_relaxed(&hb.slabs[i].users) | hb_load_relaxed(&hb.slabs[i].taken)) {
      hb_store_relaxed(&hb.slabs[i].users, 0u);
      hb_store_relaxed(&hb.slabs[i].taken, 0u);
    }
}

#endif
