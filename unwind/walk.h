/* walk.h: a list of frames, leaf first, and the walk by frame pointers that fills it where there are no unwind tables
 * (table.h); stack.h chooses.
 *
 * A frame-pointer walk is a guess wherever code was built without them, so every frame says how it was found
 * (HB_PC_*) and the walk says why it ended. What is certain: the interrupted instruction, and a hook's own
 * return address.
 *
 * Bounds: a walk reads only in [sp, stack_hi) of a stack that the thread is known to run on, 8-byte aligned and
 * strictly upwards. A stack pointer outside (coroutine, alternate stack) ends the walk after the leaf. */
#ifndef HB_WALK_H
#define HB_WALK_H

#include "agent/state.h"

#define HB_LEAF_FRAMES (HB_MAX_FRAMES - HB_ROOT_FRAMES - 1) /* kept at the leaf end when a stack is cut */
#define HB_WALK_STEPS (1u << 18) /* longest chain followed: frames of 32 bytes on a stack of 8 MiB; a millisecond or two */

struct hb_walked {
  uint32_t n;       /* frames in the array */
  uint32_t flags;   /* HB_STACK_CUT, GUESSED, OMITTED */
  uint32_t omitted;
};

HB_INLINE uint64_t hb_pc(uint64_t how, uintptr_t pc) {
  return how << HB_PC_SHIFT | ((uint64_t)pc & ((1ull << HB_PC_SHIFT) - 1));
}

static void hb_reverse(struct hb_frame *f, uint32_t n) {
  for (uint32_t i = 0; i < n / 2; i++) {
    struct hb_frame x = f[i];
    f[i] = f[n - 1 - i];
    f[n - 1 - i] = x;
  }
}

/* Collects frames; beyond HB_MAX_FRAMES the root end is a ring of the last HB_ROOT_FRAMES + 1. */
struct hb_collect {
  struct hb_frame *out;
  uint32_t total;
};

HB_INLINE void hb_collect_add(struct hb_collect *c, uint64_t pc, uintptr_t at) {
  uint32_t i = c->total++;
  if (HB_UNLIKELY(i >= HB_MAX_FRAMES)) i = HB_LEAF_FRAMES + (i - HB_LEAF_FRAMES) % (HB_ROOT_FRAMES + 1);
  c->out[i].pc = pc;
  c->out[i].at = at;
}

/* Bring the ring at the root end in order and put the marker where frames are missing. */
static void hb_collect_end(struct hb_collect *c, struct hb_walked *w) {
  w->n = c->total;
  if (HB_LIKELY(c->total <= HB_MAX_FRAMES)) return;
  struct hb_frame *ring = c->out + HB_LEAF_FRAMES;
  uint32_t len = HB_ROOT_FRAMES + 1, next = (c->total - HB_LEAF_FRAMES) % len;
  hb_reverse(ring, next); /* rotate left by next: the oldest kept frame comes first */
  hb_reverse(ring + next, len - next);
  hb_reverse(ring, len);
  w->omitted = c->total - HB_LEAF_FRAMES - HB_ROOT_FRAMES;
  ring[0].pc = hb_pc(HB_PC_MARK, w->omitted);
  ring[0].at = 0;
  w->n = HB_MAX_FRAMES;
  w->flags |= HB_STACK_OMITTED;
}

/* The stack that sp lies on, as far as known: upper end, 0 when sp is elsewhere. signal-safe */
HB_INLINE uintptr_t hb_stack_end(const struct hb_tls *t, uintptr_t sp) {
  return sp >= t->stack_lo && sp < t->stack_hi ? t->stack_hi : 0;
}

/* Follow frame pointers from bp: a frame record is {caller's bp, return address}, above `sp`. signal-safe */
static void hb_walk_fp(struct hb_collect *c, struct hb_walked *w, uintptr_t bp, uintptr_t sp, uintptr_t hi) {
  uintptr_t self_lo = hb.self_lo, self_len = hb.self_hi - self_lo, top = hi - 16;
  struct hb_frame *out = c->out;
  uint32_t n = c->total, steps = HB_WALK_STEPS;
  for (;;) {
    if (HB_UNLIKELY(bp < sp || bp > top || (bp & 7) || --steps == 0)) {
      if (bp) w->flags |= HB_STACK_CUT; /* 0 is the ABI's mark of the outermost frame */
      break;
    }
    const uintptr_t *f = (const uintptr_t *)bp;
    uintptr_t next = f[0], ra = hb_strip(f[1]);
    if (HB_UNLIKELY(ra - 0x10000 >= (1ull << HB_VA_BITS) - 0x10000)) { /* no code there: the chain was not one */
      if (ra) w->flags |= HB_STACK_CUT | HB_STACK_GUESSED;
      break;
    }
    if (HB_UNLIKELY(ra - self_lo < self_len)) break; /* our start routine called the thread's: the first frame */
    if (HB_LIKELY(n < HB_MAX_FRAMES)) {
      out[n].pc = (uint64_t)HB_PC_FP << HB_PC_SHIFT | ra;
      out[n].at = bp + 8;
      n++;
    } else {
      c->total = n;
      hb_collect_add(c, hb_pc(HB_PC_FP, ra), bp + 8);
      n = c->total;
    }
    sp = bp + 16;
    bp = next;
  }
  c->total = n;
}

#endif
