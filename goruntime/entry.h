/* entry.h: the table of goroutines: what is remembered of each, and how it gets a name in the recording. */
#ifndef HB_GO_ENTRY_H
#define HB_GO_ENTRY_H

#include "goruntime/put.h"

enum { HB_GO_PROBES = 64 };

/* Where to look for g first. Neighbours in memory are neighbours in the table, so that a program with few goroutines
 * touches few pages of it. */
static inline u32 hb_go_place(u64 g) {
  u64 block = g >> 20, in = (g >> 8) & 0xfff; /* a g has some 450 bytes */
  block = (block * 0x9e3779b97f4a7c15ull) >> 40;
  return (u32)(block << 12 | in) & (hb_go.entries - 1);
}

/* The numbers of the entries that are used; a number that is not written yet is 0. */
static inline _Atomic u32 *hb_go_used(void) { return (_Atomic u32 *)((struct hb_go_entry *)(hb_table() + 1) + hb_go.entries); }

/* The entry of g; NULL when there is no room. signal-safe */
static struct hb_go_entry *hb_go_find(u64 g) {
  struct hb_go_entry *all = (struct hb_go_entry *)(hb_table() + 1);
  u32 mask = hb_go.entries - 1, at = hb_go_place(g);
  for (u32 i = 0; i < HB_GO_PROBES; i++, at = (at + 1) & mask) {
    struct hb_go_entry *e = &all[at];
    u64 has = hb_load_relaxed(&e->g);
    if (has == g) return e;
    if (has == 0) {
      if (hb_cas_seq(&e->g, &has, g)) {
        u32 n = hb_add_relaxed(&hb_table()->used, 1u);
        if (n < hb_go.entries) hb_store_relaxed(&hb_go_used()[n], at);
        return e;
      }
      if (has == g) return e;
    }
  }
  hb_add_relaxed(&hb_table()->full, 1u);
  return 0;
}

static inline void hb_go_rec(struct hb_rec *r, u32 type, u32 hook, u32 uid, u32 seq, u64 now) {
  r->bytes = 0;
  r->type = (uint8_t)type;
  r->flags = 0;
  r->hook = (uint16_t)hook;
  r->thread = uid;
  r->seq = seq;
  r->time_ns = now;
}

/* The next record's number; 1 is the THREAD record's. */
static inline u32 hb_go_seq(struct hb_go_entry *e) { return hb_add_relaxed(&e->seq, 1u) + 2; }

/* The thread uid of the goroutine that gp is now. The first record of a goroutine is its THREAD record, number 1. Two
 * threads may meet it at once: one of them writes it. signal-safe */
static u32 hb_go_uid(struct hb_go_entry *e, u64 gp, u64 now) {
  u32 uid = hb_load_relaxed(&e->uid);
  if (HB_LIKELY(uid != 0)) return uid;
  u32 mine = hb_add_relaxed(&hb_header()->next_thread_uid, 1u) + 1;
  if (!hb_cas_seq(&e->uid, &uid, mine)) return uid; /* the number is not used */
  u64 goid = HB_LD(gp, hb_go.g_goid), born = hb_load_relaxed(&e->born_ns);
  struct hb_rec_thread r;
  hb_go_rec(&r.rec, HB_REC_THREAD, 0, mine, 1, now);
  r.proc_uid = hb_go.proc_uid;
  r.tid = (u32)goid & 0x7fffffffu;
  r.parent_uid = hb_load_relaxed(&e->creator);
  r.flags = HB_THREADF_GOROUTINE | (goid == 1 ? HB_THREADF_MAIN : 0u) | (born ? 0u : HB_THREADF_LAZY);
  r.start_ns = born ? born : now;
  r.start_routine = HB_LD(gp, hb_go.g_startpc);
  r.cpu_start_ns = 0;
  for (int i = 0; i < HB_NAME_BYTES; i++) r.name[i] = 0;
  hb_go_put(&r.rec, sizeof r, 0, 0);
  return mine;
}

#endif
