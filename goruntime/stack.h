/* stack.h: stacks of goroutines, by frame pointers, which Go's compiler keeps on amd64. */
#ifndef HB_GO_STACK_H
#define HB_GO_STACK_H

#include "goruntime/ground.h"

enum { HB_GO_FRAMES = 64 };

struct hb_go_stack {
  u64 pcs[HB_GO_FRAMES]; /* leaf first, with how each was found */
  u32 n;
  u32 cut;
};

/* Code of the runtime and of package sync, in which every wait ends: says nothing of the program. */
static inline int hb_go_leaf(u64 pc) {
  return (pc >= hb_go.leaf0_lo && pc < hb_go.leaf0_hi) || (pc >= hb_go.leaf1_lo && pc < hb_go.leaf1_hi) ||
         (pc >= hb_go.leaf2_lo && pc < hb_go.leaf2_hi) || (pc >= hb_go.leaf3_lo && pc < hb_go.leaf3_hi);
}

static inline void hb_go_push(struct hb_go_stack *s, u64 pc, u64 how) {
  if (s->n == HB_GO_FRAMES)
    s->cut = 1;
  else
    s->pcs[s->n++] = (pc & ((1ull << HB_PC_SHIFT) - 1)) | how << HB_PC_SHIFT;
}

/* Follows the frame pointers from bp, inside [lo, hi). */
static void hb_go_walk(struct hb_go_stack *s, u64 bp, u64 lo, u64 hi) {
  while (bp >= lo && bp < hi && hi - bp >= 16 && !(bp & 7)) {
    u64 next = HB_LD(bp, 0), pc = HB_LD(bp, 8);
    if (!pc) break;
    hb_go_push(s, pc, HB_PC_FP);
    if (s->cut || next <= bp) break;
    bp = next;
  }
}

/* Takes the runtime's own frames off the leaf's end, if others are left. */
static void hb_go_trim(struct hb_go_stack *s) {
  u32 k = 0;
  while (k < s->n && hb_go_leaf((s->pcs[k] & ((1ull << HB_PC_SHIFT) - 1)) - 1)) k++;
  if (k == s->n) return;
  for (u32 i = k; i < s->n; i++) s->pcs[i - k] = s->pcs[i];
  s->n -= k;
}

/* Of a goroutine that does not run, or whose thread is on another stack. */
static void hb_go_parked(struct hb_go_stack *s, u64 gp) {
  s->n = s->cut = 0;
  hb_go_push(s, HB_LD(gp, hb_go.g_pc), HB_PC_FP);
  hb_go_walk(s, HB_LD(gp, hb_go.g_bp), HB_LD(gp, hb_go.g_stack_lo), HB_LD(gp, hb_go.g_stack_hi));
  hb_go_trim(s);
}

/* Of goroutine gp, on whose stack the caller's frame pointer bp is if g is gp. */
static void hb_go_stack_of(struct hb_go_stack *s, u64 gp, u64 g, u64 bp) {
  if (g != gp) {
    hb_go_parked(s, gp);
    return;
  }
  s->n = s->cut = 0;
  hb_go_walk(s, bp, HB_LD(gp, hb_go.g_stack_lo), HB_LD(gp, hb_go.g_stack_hi));
  hb_go_trim(s);
}

static inline struct hb_stack hb_go_stack_head(const struct hb_go_stack *s) {
  struct hb_stack h = {0, (uint16_t)s->n, HB_STACK_FULL, 0, 0, 0};
  if (s->cut) h.flags |= HB_STACK_CUT;
  if (!s->n) h.flags = HB_STACK_NONE;
  return h;
}

#endif
