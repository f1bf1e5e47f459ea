/* handler.h: the target's side of the sampler: the signal handler, and keeping the target's own use of the signal
 * apart from ours.
 *
 * The default signal is SIGURG, whose default action is to be ignored: one that comes too late, to a program that
 * has just exec'ed or reset its handlers, does no harm. Ours carry a cookie (SI_QUEUE, si_value); any other is the
 * target's and goes to the handler that the target believes to have installed (action.h). When the kernel had no room for
 * the siginfo (RLIMIT_SIGPENDING) the slot's SIGNALLED decides.
 *
 * Standard signals do not queue: one that the target sends to a thread while ours is pending there would be lost in
 * ours. So a target that installs a handler of its own is not signalled any more (HB_PROCF_HANDLER_CHAINED): its
 * threads are asked, and answer at their next hook; and a thread that has the signal blocked never is (mask.h). */
#ifndef HB_HANDLER_H
#define HB_HANDLER_H

#include "agent/thread.h"
#include "sampler/action.h"
#include "sampler/arrival.h"
#include "sampler/lend.h"
#include "sampler/sigaction.h"
#include "syscallproxy/proxy.h"

/* The target is sent the signal by others, and has no handler for it: we do without one from here on. signal-safe; all signals
 * are masked */
static void hb_give_up(const struct hb_tls *t, int sig, const struct hb_sigaction *app, const struct hb_siginfo *info) {
  if (hb.slot) atomic_fetch_or_explicit(&hb.slot->flags, HB_PROCF_SYNC_ONLY, memory_order_relaxed);
  hb_store_relaxed(&hb.given_up, 1u);
  hb_store_release(&hb.ignored_at, hb_stamp());
  hb_action_install(app, NULL);
  if (sig >= 32 && app->handler == HB_SIG_DFL) hb_send_again(t, sig, info); /* its default is to end the process */
}

/* A signal that is not ours. In the target's handler's own surroundings if it has one (hb_action_install), otherwise with all
 * signals masked. signal-safe */
static void hb_signal_foreign(struct hb_tls *t, int sig, struct hb_siginfo *info, void *uc) {
  struct hb_sigaction app = *hb_app_action();
  HB_COUNT(signals_foreign);
  if (t->slot && hb_load_relaxed(&t->slot->state) == HB_BLOCKED && hb_ucontext_interrupted(uc))
    t->ended = hb_ended_mark(t->outer_stamp);
  if (hb_lent_put_back(t, sig, info, uc)) return;
  if (!hb_handles(&app)) {
    hb_give_up(t, sig, &app, info);
    return;
  }
  t->ended = 0; /* as the program wants it */
  if (app.flags & HB_SA_RESETHAND) hb_app_action_set(&(struct hb_sigaction){HB_SIG_DFL, app.flags, NULL, app.mask});
  if (app.flags & HB_SA_SIGINFO)
    ((void (*)(int, void *, void *))app.handler)(sig, info, uc);
  else
    ((void (*)(int))app.handler)(sig);
}

static void hb_foreign_back(const struct hb_tls *t, const union hb_siginfo_whole *held, uint32_t n, int blocked) {
  struct hb_sigaction app = *hb_app_action();
  for (uint32_t i = 0; i < n; i++) {
    HB_COUNT(signals_foreign);
    if (blocked || hb_handles(&app)) hb_send_again(t, (int)hb.signal, &held[i].info);
    else hb_give_up(t, (int)hb.signal, &app, &held[i].info);
  }
}

/* signal-safe; all signals are masked while it runs, unless the target has a handler of its own */
static void hb_on_signal(int sig, struct hb_siginfo *info, void *uc) {
  uint64_t from = hb_stamp();
  struct hb_tls *t = hb_self();
  struct hb_thread *s = t->slot;
  int ours = hb_is_ours(info);
  int announced = s && hb_load_relaxed(&hb.wiped->alive) && hb_load_acquire(&s->state) == HB_SIGNALLED;
  if (!ours && announced && hb_is_nobodys(info)) ours = 1;
  if (!ours) {
    hb_signal_foreign(t, sig, info, uc);
    return;
  }
  if (!announced) {
    HB_COUNT(signals_stray);
    return;
  }
  if (HB_UNLIKELY(hb_load_acquire(&hb_calls_shut))) { /* it comes too late */
    hb_store_release(&s->state, (uint32_t)HB_RUNNING);
    return;
  }
  struct hb_arrival a;
  hb_arrived(s, hb_ucontext_after_syscall(uc), &a);
  uint32_t ask = hb_load_relaxed(&s->ask);
  if (ask == HB_ASK_PERIODIC) a.how |= hb_arrived_worth(t, &a) << HB_WORTH_SHIFT;
  hb_take_sample(t, ask, 0, uc, NULL, a.how, a.cpu);
  hb_own_timed(s, from, hb_stamp(), 1);
  hb_store_release(&s->state, (uint32_t)HB_RUNNING);
}

/* Does the target have our signal blocked, and not all others as well? Then it has a use for it. hook path */
static HB_NOINLINE void hb_signal_alone(struct hb_tls *t) {
  uint64_t mask = 0;
  if (!(t->flags & HB_TLS_BLOCKED) || !hb.moves || hb.confined || hb_is_err(hb_signal_mask(0, NULL, &mask))) return;
  if (mask & hb_signal_bit() && !hb_blocks_all(mask)) hb_signal_move(t, hb.signal);
}

/* Install our handler; what was there becomes the target's. init only */
static void hb_signal_install(void) {
  struct hb_sigaction none = {0, 0, 0, 0}, old = {0, 0, 0, 0};
  if (hb_is_err(hb_action_install(&none, &old))) {
    atomic_fetch_or_explicit(&hb.slot->flags, HB_PROCF_SYNC_ONLY, memory_order_relaxed);
    return;
  }
  if (old.handler != (void *)hb_on_signal) {
    hb_app_action_set(&old);
    if (hb_handles(&old) && !hb_signal_move(hb_self(), hb.signal)) hb_own_action(&old, NULL);
  }
  hb_signal_alone(hb_self());
}

#endif
