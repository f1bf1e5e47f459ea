/* live.h: which addresses were sampled and are in use: a hash table that threads enter and clear without a lock, and the small
 * counting filter before it that keeps every other free to one byte test. All of it is wiped in a fork child. */
#ifndef HB_LIVE_H
#define HB_LIVE_H

#include "agent/state.h"

#define HB_ALLOC_PROBES 16 /* window of the table that an address may lie in: two cache lines */

HB_INLINE uint64_t hb_alloc_hash(uint64_t addr) { return (addr >> 4) * 0x9e3779b97f4a7c15ull; }

/* The filter's byte for an address: looked at by every free, so no multiplication and few cache lines. hook path */
HB_INLINE _Atomic uint8_t *hb_filter(uint64_t addr) {
  return &hb.wiped->free_filter[(addr >> 4 ^ addr >> 15) & (HB_FREE_FILTER - 1)];
}

/* Count an address in or out. A byte that is full stays so: its addresses are always looked up. hook path */
static void hb_filter_count(uint64_t addr, int step) {
  _Atomic uint8_t *c = hb_filter(addr);
  uint8_t n = hb_load_relaxed(c);
  while (n != 255 && !hb_cas_seq(c, &n, (uint8_t)(n + step))) {}
}

/* Remember a sampled address; 0 when the table has no room near its place. hook path */
static int hb_alloc_track(uint64_t addr) {
  uint64_t h = hb_alloc_hash(addr);
  if (!hb.alloc_table) return 0;
  for (uint32_t i = 0; i < HB_ALLOC_PROBES; i++) {
    _Atomic uint64_t *e = &hb.alloc_table[((uint32_t)(h >> 20) + i) & hb.alloc_mask];
    uint64_t none = 0;
    if (hb_load_relaxed(e) == 0 && hb_cas_seq(e, &none, addr)) {
      hb_filter_count(addr, 1);
      return 1;
    }
  }
  HB_COUNT(alloc_table_full);
  return 0;
}

/* Forget it; 0 when it was not sampled. Before the real free: the address may be handed out again at once. */
static int hb_alloc_untrack(uint64_t addr) {
  uint64_t h = hb_alloc_hash(addr);
  if (!hb.alloc_table || !addr) return 0; /* 0 marks free entries, and free(NULL) may meet a byte that others set */
  for (uint32_t i = 0; i < HB_ALLOC_PROBES; i++) {
    _Atomic uint64_t *e = &hb.alloc_table[((uint32_t)(h >> 20) + i) & hb.alloc_mask];
    uint64_t want = addr;
    if (hb_load_relaxed(e) == addr && hb_cas_seq(e, &want, (uint64_t)0)) {
      hb_filter_count(addr, -1);
      return 1;
    }
  }
  return 0;
}

HB_INLINE int hb_maybe_sampled(const void *p) { return hb_load_relaxed(hb_filter((uint64_t)p)) != 0; }

/* A sampled address was freed where no record can be written: on a thread that has said goodbye (the C library gives dead
 * threads' memory back there), that has no slot, or in a handler that interrupted us. The next thread that records an
 * allocation writes it, so that an address is never handed out again before. Before the real free. hook path */
static void hb_orphan_free(uint64_t addr) {
  for (uint32_t i = 0; i < HB_ORPHAN_FREES; i++) {
    uint64_t none = 0;
    if (hb_load_relaxed(&hb.wiped->orphan_free[i]) || !hb_cas_seq(&hb.wiped->orphan_free[i], &none, addr)) continue;
    hb_add_relaxed(&hb.wiped->orphan_frees, 1u);
    return;
  }
  HB_COUNT(alloc_table_full);
}

#define HB_ORPHAN_TAKEN 1ull /* in an address, which is even: somebody is writing its record */

/* The address in place i of the list, for the caller to write its record; 0 when there is none. */
static uint64_t hb_orphan_take(uint32_t i) {
  uint64_t addr = hb_load_relaxed(&hb.wiped->orphan_free[i]);
  if (!addr || addr & HB_ORPHAN_TAKEN || !hb_cas_seq(&hb.wiped->orphan_free[i], &addr, addr | HB_ORPHAN_TAKEN)) return 0;
  return addr;
}

/* Its record has its time. */
static void hb_orphan_done(uint32_t i) {
  hb_store_release(&hb.wiped->orphan_free[i], (uint64_t)0);
  hb_sub_release(&hb.wiped->orphan_frees, 1u);
}

/* Is the record of an address's last free still to come? It has been handed out again meanwhile. hook path */
static HB_NOINLINE int hb_orphan_due(uint64_t addr) {
  for (uint32_t i = 0; i < HB_ORPHAN_FREES; i++)
    if (hb_load_acquire(&hb.wiped->orphan_free[i]) == (addr | HB_ORPHAN_TAKEN)) return 1;
  return 0;
}

#endif
