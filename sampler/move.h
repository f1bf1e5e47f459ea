/* move.h: another sampling signal, for a program that has a use for ours.
 *
 * A handler for it, or blocking it alone (to read it from a signalfd, or by sigwait), makes samples wait for the next hook:
 * they lean towards calls. So the process is signalled by another one from then on, and the first is the program's as if
 * we had never had it. There are two, both ignored by default: whatever comes too late does no harm.
 *
 * The move is made by the thread that shows the use, when no signal of ours is under way to any thread (hb_signals_drain);
 * the sampler reads hb_proc.signal under the gate. Other threads have HB_TLS_BLOCKED of the old signal until their next
 * sample at a hook (hb_signal_follow): until then one that blocks the old one only takes samples at hooks.
 *
 * Not moved: where the user has chosen the signal, where both are used or the new one is blocked, where threads have lent the
 * old one (lend.h), where signals stay under way. What is left then is action.h's. */
#ifndef HB_MOVE_H
#define HB_MOVE_H

#include "sampler/action.h"

#define HB_MOVE_NS 100000000u /* how long signals under way are waited for */

static long hb_signal_mask(int how, const uint64_t *set, uint64_t *old) {
  return hb_sys4(HB_SYS_rt_sigprocmask, how, set, old, 8);
}

/* This thread's HB_TLS_BLOCKED is about the signal that is in force; mask is the thread's. hook path */
static void hb_signal_follow(struct hb_tls *t, uint64_t mask) {
  struct hb_block b;
  hb_block_enter(t, t->slot, &b, HB_FRAME);
  if (!b.passive) {
    t->flags = (t->flags & ~(uint32_t)HB_TLS_MOVED) | hb.moved;
    hb_rest_set(t, HB_TLS_BLOCKED, (mask & hb_signal_bit()) != 0);
  }
  hb_block_leave(t, t->slot, &b);
}

/* Another thread has moved. hook path */
static HB_NOINLINE void hb_signal_followed(struct hb_tls *t) {
  uint64_t mask = 0;
  if ((uint32_t)hb_sys1(HB_SYS_gettid, 0) == t->tid && !hb_is_err(hb_signal_mask(0, NULL, &mask))) hb_signal_follow(t, mask);
}

/* All signals are masked; mask is what was. Returns whether it moved. hook path */
static int hb_signal_moved(struct hb_tls *t, uint64_t mask) {
  uint32_t from = hb.signal, to = from == HB_SIGURG ? HB_SIGWINCH : HB_SIGURG;
  struct hb_sigaction was = *hb_app_action(), other;
  if (mask >> (to - 1) & 1 || hb_is_err(hb_sys4(HB_SYS_rt_sigaction, to, NULL, &other, 8)) || other.handler != HB_SIG_DFL) return 0;
  int moved = hb_signals_drain(t, HB_MOVE_NS);
  if (moved) {
    hb.signal = to;
    moved = !hb_is_err(hb_action_install(&other, NULL));
    if (moved) {
      hb_app_action_set(&other);
      hb_store_relaxed(&hb.slot->signal, to);
      hb.moved = to == HB_SIGURG ? 0 : HB_TLS_MOVED;
      hb_sys4(HB_SYS_rt_sigaction, from, &was, NULL, 8);
      hb_signal_follow(t, mask);
    } else {
      hb.signal = from;
    }
  }
  hb_sub_relaxed(&hb.slot->gate, (uint32_t)HB_GATE_EXEC);
  return moved;
}

/* The target is about to use signal `from` itself. Returns whether ours is another one now. hook path */
static HB_NOINLINE int hb_signal_move(struct hb_tls *t, uint32_t from) {
  uint64_t all = ~0ull, mask = 0, since = hb_now_ns();
  uint32_t idle = 0;
  if (!hb.moves || hb_load_relaxed(&hb.lent) || hb_load_relaxed(&hb.given_up) || !hb_thread_ready(t) ||
      (uint32_t)hb_sys1(HB_SYS_gettid, 0) != t->tid || hb_is_err(hb_signal_mask(0, &all, &mask)))
    return 0;
  while (!hb_cas_seq(&hb.moving, &idle, 1u) && hb_now_ns() - since < 2 * HB_MOVE_NS) { /* another thread does */
    idle = 0;
    hb_sys1(HB_SYS_sched_yield, 0);
  }
  int moved = hb.signal != from;
  if (!idle) {
    if (!moved) {
      hb_sub_relaxed(&hb.moves, 1u);
      moved = hb_signal_moved(t, mask);
    }
    hb_store_release(&hb.moving, 0u);
  }
  hb_signal_mask(2, &mask, NULL);
  return moved;
}

#endif
