/* own.h: the agent's own CPU time, measured while the program runs. Each thread adds it up in its slot, in stamps:
 *
 *   sections   what lies between hb_begin and hb_end: stacks, records. One of HB_OWN_SECTIONS is timed, and counts for as many.
 *   passages   hooks of calls and waits, before and after the real function, without sections. One of HB_OWN_PASSAGES, chosen by a hash of the
 *              thread's counter, so that calls which take turns are all met.
 *   handlers   all of them, from the first instruction to the last.
 *   clocks     reading the thread's CPU clock at a sampling point.
 *   gates      functions that are too short to be timed (malloc, free, uncontended locks; HB_GATE). A sampling signal that interrupts one
 *              stands for the CPU time that its sample weighs.
 *
 * A timed stretch of more than HB_OWN_MOST_NS was preempted: it is left out. What the kernel does to deliver a signal is not in it. */
#ifndef HB_OWN_H
#define HB_OWN_H

#include "sampler/points.h"
#include "unwind/stack.h"

#define HB_OWN_SECTIONS 7
#define HB_OWN_PASSAGES 64
#define HB_OWN_MOST_NS 30000

extern const char hb_gates_lo[] __asm__("__start_hb_gates") __attribute__((visibility("hidden")));
extern const char hb_gates_hi[] __asm__("__stop_hb_gates") __attribute__((visibility("hidden")));

/* signal-safe; a handler between the load and the store takes a little from the sum */
HB_INLINE void hb_own_add(struct hb_thread *s, uint64_t stamps) {
  hb_store_relaxed(&s->own_stamps, hb_load_relaxed(&s->own_stamps) + stamps);
}

/* A stretch that was timed, and stands for `weight` of its kind. signal-safe */
static HB_NOINLINE void hb_own_timed(struct hb_thread *s, uint64_t from, uint64_t to, uint64_t weight) {
  if ((int64_t)(to - from) > 0 && hb_stamp_ns(from, to) < HB_OWN_MOST_NS) hb_own_add(s, (to - from) * weight);
}

/* Is this passage timed? count: of the thread's calls or waits so far. hook path */
HB_INLINE int hb_own_passage(uint64_t count) {
  return ((uint32_t)count * 0x9e3779b1u) >> 26 == 0;
}
_Static_assert(HB_OWN_PASSAGES == 1 << (32 - 26), "hb_own_passage shifts by 26");

/* signal-safe, in the section */
HB_INLINE void hb_own_begin(struct hb_tls *t) {
  struct hb_local *l = t->local;
  if (HB_UNLIKELY(!l || t->flags & HB_TLS_FRESH)) return;
  l->own_from = 0;
  if (HB_LIKELY(++l->own_turn % HB_OWN_SECTIONS)) return;
  l->own_from = hb_stamp();
}

/* signal-safe, in the section. In a handler it counts with that. */
HB_INLINE void hb_own_end(struct hb_tls *t, int in_handler) {
  struct hb_local *l = t->local;
  if (HB_LIKELY(!l || t->flags & HB_TLS_FRESH || !l->own_from)) return;
  if (!in_handler && t->slot) hb_own_timed(t->slot, l->own_from, hb_stamp(), HB_OWN_SECTIONS);
  l->own_from = 0;
}

/* A sampling signal interrupted `pc`, outside of sections, and stands for `weight` ns. signal-safe */
HB_INLINE void hb_own_met(struct hb_thread *s, uintptr_t pc, uint64_t weight) {
  if (HB_UNLIKELY(pc - (uintptr_t)hb_gates_lo < (uintptr_t)(hb_gates_hi - hb_gates_lo)))
    hb_own_add(s, (uint64_t)(((unsigned __int128)weight * hb.stamps_mult) >> 20));
}

#endif
