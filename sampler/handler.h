/* handler.h: the target's side of the sampler: the signal handler, and keeping the target's own use of the signal
 * apart from ours.
 *
 * The default signal is SIGURG, whose default action is to be ignored: one that comes too late, to a program that
 * has just exec'ed or reset its handlers, does no harm. Ours carry a cookie (SI_QUEUE, si_value); any other is the
 * target's and goes to the handler that the target believes to have installed. When the kernel had no room for
 * the siginfo (RLIMIT_SIGPENDING) the slot's SIGNALLED decides.
 *
 * Standard signals do not queue: one that the target sends to a thread while ours is pending there would be lost in
 * ours. So a target that installs a handler of its own is not signalled any more (HB_PROCF_HANDLER_CHAINED): its
 * threads are asked, and answer at their next hook; and a thread that has the signal blocked never is (mask.h). */
#ifndef HB_HANDLER_H
#define HB_HANDLER_H

#include "agent/thread.h"
#include "sampler/arrival.h"
#include "sampler/lend.h"
#include "syscallproxy/proxy.h"

#define HB_SA_SIGINFO 4ul
#define HB_SA_ONSTACK 0x08000000ul
#define HB_SA_RESTART 0x10000000ul
#define HB_SIG_DFL ((void *)0)
#define HB_SIG_IGN ((void *)1)

/* A sampling signal that is the target's own. signal-safe */
static void hb_chain(int sig, struct hb_siginfo *info, void *uc) {
  HB_COUNT(signals_foreign);
  void *h = hb.app_action.handler;
  if (!hb_load_acquire(&hb.app_action_set) || h == HB_SIG_DFL || h == HB_SIG_IGN) return;
  if (hb.app_action.flags & HB_SA_SIGINFO)
    ((void (*)(int, void *, void *))h)(sig, info, uc);
  else
    ((void (*)(int))h)(sig);
}

/* signal-safe; all signals are masked while it runs */
static void hb_on_signal(int sig, struct hb_siginfo *info, void *uc) {
  struct hb_tls *t = hb_self();
  struct hb_thread *s = t->slot;
  int ours = hb_is_ours(info);
  int announced = s && hb_load_relaxed(&hb.wiped->alive) && hb_load_acquire(&s->state) == HB_SIGNALLED;
  if (!ours && announced && info->code == 0 && info->pid == 0) ours = 1;
  if (!ours) {
    if (!hb_lent_put_back(t, sig, info, uc)) hb_chain(sig, info, uc);
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
  hb_take_sample(t, ask, 0, uc, NULL, a.how);
  hb_store_release(&s->state, (uint32_t)HB_RUNNING);
}

/* Install our handler; what was there becomes the target's. init only */
static void hb_signal_install(void) {
  struct hb_sigaction a = {(void *)hb_on_signal, HB_SA_SIGINFO | HB_SA_ONSTACK | HB_SA_RESTART | HB_SA_RESTORER,
                           (void *)hb_restorer, ~0ull};
  struct hb_sigaction old = {0, 0, 0, 0};
  if (hb_is_err(hb_sys4(HB_SYS_rt_sigaction, hb.signal, &a, &old, 8))) {
    hb_store_relaxed(&hb.slot->flags, hb_load_relaxed(&hb.slot->flags) | HB_PROCF_SYNC_ONLY);
    return;
  }
  if (old.handler != (void *)hb_on_signal) {
    hb.app_action = old;
    hb_store_release(&hb.app_action_set, (uint32_t)(old.handler != HB_SIG_DFL && old.handler != HB_SIG_IGN));
  }
}

/* ---- the target's sigaction(2) on our signal is kept, not installed ---- */

/* libc's struct sigaction on this ABI: handler, mask (1024 bits), flags, restorer */
struct hb_libc_sigaction {
  void *handler;
  uint64_t mask[16];
  int flags;
  void *restorer;
};

HB_EXPORT int sigaction(int sig, const struct hb_libc_sigaction *act, struct hb_libc_sigaction *old) {
  typedef int (*fn)(int, const void *, void *);
  fn real = HB_REAL(fn, sigaction);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  if (HB_LIKELY((uint32_t)sig != hb.signal || !hb_load_relaxed(&hb.on))) return real(sig, act, old);
  struct hb_sigaction was = hb.app_action;
  if (act) {
    hb_store_release(&hb.app_action_set, 0u);
    hb.app_action = (struct hb_sigaction){act->handler, (unsigned long)(unsigned)act->flags, NULL, act->mask[0]};
    int handles = act->handler != HB_SIG_DFL && act->handler != HB_SIG_IGN;
    hb_store_release(&hb.app_action_set, (uint32_t)handles);
    uint32_t flags = hb_load_relaxed(&hb.slot->flags) & ~(uint32_t)HB_PROCF_HANDLER_CHAINED;
    hb_store_relaxed(&hb.slot->flags, flags | (handles ? HB_PROCF_HANDLER_CHAINED : 0u));
  }
  if (old) {
    memset(old, 0, sizeof *old);
    old->handler = was.handler;
    old->flags = (int)(was.flags & ~HB_SA_RESTORER);
    old->mask[0] = was.mask;
  }
  return 0;
}

HB_EXPORT void *signal(int sig, void *handler) {
  typedef void *(*fn)(int, void *);
  fn real = HB_REAL(fn, signal);
  if (!real) return (void *)hb_fail(HB_ENOSYS);
  if (HB_LIKELY((uint32_t)sig != hb.signal || !hb_load_relaxed(&hb.on))) return real(sig, handler);
  struct hb_libc_sigaction a, old;
  memset(&a, 0, sizeof a);
  a.handler = handler;
  a.flags = (int)HB_SA_RESTART;
  sigaction(sig, &a, &old);
  return old.handler;
}

#endif
