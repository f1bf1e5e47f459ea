/* action.h: what the target has installed for the sampling signal, or believes to have.
 *
 * Without a handler of the target's the kernel has ours. With one it has ours as well, but with the target's flags and
 * mask, and nobody sends a signal of ours any more (HB_PROCF_HANDLER_CHAINED): so the target's handler runs on the
 * stack, under the mask and as often as it asked for, and calls end with EINTR or go on as it asked for. Ours only
 * hands on (handler.h).
 *
 * A signal of the target's own that it ignores must not show either. One has shown when it arrives: a call that it
 * ended is made again (hooks/again.h), and from then on the kernel has what the target asked for, and we have no
 * handler. */
#ifndef HB_ACTION_H
#define HB_ACTION_H

#include "agent/thread.h"
#include "syscallproxy/proxy.h"

#define HB_SA_SIGINFO 4ul
#define HB_SA_ONSTACK 0x08000000ul
#define HB_SA_RESTART 0x10000000ul
#define HB_SA_NODEFER 0x40000000ul
#define HB_SA_RESETHAND 0x80000000ul
#define HB_SIG_DFL ((void *)0)
#define HB_SIG_IGN ((void *)1)
#define HB_SIG_HOLD ((void *)2)
#define HB_SIG_ERR ((void *)-1)

HB_INLINE int hb_handles(const struct hb_sigaction *a) { return a->handler != HB_SIG_DFL && a->handler != HB_SIG_IGN; }

/* The one in force. It is whole while fewer than HB_ACTIONS newer ones are made. signal-safe */
static const struct hb_sigaction *hb_app_action(void) { return &hb.app_actions[hb_load_acquire(&hb.app_action_now) % HB_ACTIONS]; }

/* signal-safe */
static void hb_app_action_set(const struct hb_sigaction *a) {
  uint32_t i = hb_add_relaxed(&hb.app_action_made, 1u) + 1;
  hb.app_actions[i % HB_ACTIONS] = *a;
  hb_store_release(&hb.app_action_now, i);
}

/* Give the kernel what belongs to the target's action. signal-safe */
static long hb_action_install(const struct hb_sigaction *app, struct hb_sigaction *old) {
  struct hb_sigaction a = {(void *)hb_on_signal, HB_SA_SIGINFO | HB_SA_ONSTACK | HB_SA_RESTART | HB_SA_RESTORER,
                           (void *)hb_restorer, ~0ull};
  if (hb_handles(app)) {
    a.flags = app->flags | HB_SA_SIGINFO | HB_SA_RESTORER;
    a.mask = app->mask;
  } else if (hb_load_relaxed(&hb.given_up)) {
    a = *app;
    if (!a.restorer) a.flags |= HB_SA_RESTORER, a.restorer = (void *)hb_restorer;
  }
  return hb_sys4(HB_SYS_rt_sigaction, hb.signal, &a, old, 8);
}

/* No signal of ours is on its way to the process any more, but to threads that do not run for so long. The sampler is
 * shut out (hb_proc.gate) until the caller takes that back. Returns whether none is, for certain. hook path */
static HB_NOINLINE int hb_signals_drain(struct hb_tls *t, uint64_t limit_ns) {
  uint64_t since = hb_now_ns();
  atomic_fetch_add_explicit(&hb.slot->gate, (uint32_t)HB_GATE_EXEC, memory_order_seq_cst);
  while (hb_load_acquire(&hb.slot->gate) & HB_GATE_SENDING && hb_now_ns() - since < limit_ns) hb_sys1(HB_SYS_sched_yield, 0);
  if (t->slot) {
    struct hb_block b;
    hb_block_enter(t, t->slot, &b, HB_FRAME); /* takes what is under way to this thread */
    hb_block_leave(t, t->slot, &b);
  }
  uint32_t high = hb_load_relaxed(&hb.header->threads_high);
  for (uint32_t i = 0; i < high && i < hb.threads_cap; i++) {
    const struct hb_thread *s = &hb.threads[i];
    while (hb_load_acquire(&s->state) == HB_SIGNALLED && s->proc_uid == hb.uid && hb_load_relaxed(&s->uid) && s != t->slot &&
           hb_now_ns() - since < limit_ns)
      hb_sys1(HB_SYS_sched_yield, 0);
  }
  return hb_now_ns() - since < limit_ns;
}

/* ---- the target's sigaction(2) on our signal ---- */

#define HB_DRAIN_NS 100000000u

/* hook path */
static HB_NOINLINE long hb_own_action(const struct hb_sigaction *act, struct hb_sigaction *old) {
  struct hb_tls *t = hb_self();
  struct hb_sigaction was = *hb_app_action();
  if (old) *old = was;
  if (!act) return 0;
  int had = hb_handles(&was), has = hb_handles(act);
  if (has && !had) {
    atomic_fetch_or_explicit(&hb.slot->flags, HB_PROCF_HANDLER_CHAINED, memory_order_relaxed);
    hb_signals_drain(t, HB_DRAIN_NS);
  }
  hb_app_action_set(act);
  long r = hb_action_install(act, NULL);
  if (has && !had) hb_sub_relaxed(&hb.slot->gate, (uint32_t)HB_GATE_EXEC);
  if (!has && had) atomic_fetch_and_explicit(&hb.slot->flags, ~(uint32_t)HB_PROCF_HANDLER_CHAINED, memory_order_relaxed);
  return r;
}

#endif
