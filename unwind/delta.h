/* delta.h: a new stack as a difference to the thread's last one.
 *
 * The last stack is kept root first, each frame with the address of the stack slot that holds its return
 * address. Counted from the root, a frame is the *same invocation* as before when
 *   - return address and slot are equal, and
 *   - the slot through which its caller will be returned to was not popped since: no hook has run with a stack
 *     pointer above it (hb_tls.shallowest, one compare and store per hook).
 * What no hook saw cannot be known: a function that returned and was called again between two samples without
 * passing a hook looks like one call. */
#ifndef HB_DELTA_H
#define HB_DELTA_H

#include "unwind/stack.h"

/* Keep a stack that proves nothing (by frame pointers, or with frames left out): to compare with, not to join. */
static void hb_keep_unproved(struct hb_memory *m, const struct hb_frame *f, uint32_t n) {
  m->depth = m->solid = 0;
  hb_compiler_barrier();
  for (uint32_t i = 0; i < n; i++) {
    m->f[i].pc = f[n - 1 - i].pc;
    m->f[i].at = f[n - 1 - i].at;
  }
  m->generation = 0;
  hb_compiler_barrier();
  m->depth = n;
}

/* Describe the stack against the thread's last, and make it the last. Fills *s; the frames to send are
 * scratch[0 .. s->count), leaf first. signal-safe, under t->busy */
static void hb_delta(struct hb_tls *t, struct hb_stack_taken *x, struct hb_stack *s) {
  struct hb_local *l = t->local;
  struct hb_memory *m = &l->last;
  struct hb_frame *f = hb_scratch(l);
  uint32_t joined = x->v.joined, n = x->v.n, depth = joined + n, same = joined, flags = x->w.flags;
  if (t->need_full) {
    flags |= HB_STACK_FULL;
    same = 0;
  } else {
    uintptr_t popped = t->shallowest;
    uint32_t limit = depth < m->depth ? depth : m->depth;
    while (same < limit && m->f[same].pc == f[depth - 1 - same].pc && m->f[same].at == f[depth - 1 - same].at) same++;
    /* Slots lie lower the deeper the frame: only frames at the deep end can have lost theirs. */
    uint32_t alive = same;
    while (alive > 1 && m->f[alive - 2].at < popped) alive--;
    /* All of it alive, and the frame behind it entered through a slot that still stands: the same invocation, at
     * another of its instructions. */
    if (alive == same && same && same < limit && m->f[same - 1].at >= popped) flags |= HB_STACK_SAME_CALL;
    for (same = alive; joined > same; joined--) { /* joined frames that were called anew are sent, too */
      f[n].pc = m->f[joined - 1].pc;
      f[n].at = m->f[joined - 1].at;
      n++;
    }
  }
  if (HB_LIKELY(x->remember)) hb_memory_keep(m, &x->u, &x->c, &l->scratch, &x->v);
  else hb_keep_unproved(m, f, x->v.n);
  t->shallowest = 0;
  s->same = (uint16_t)same;
  s->count = (uint16_t)(depth - same);
  s->flags = (uint16_t)flags;
  s->python = 0;
  s->omitted = x->w.omitted;
  s->reserved2 = 0;
}

#endif
