/* sigaction.h: the functions by which the target says what is to happen at the sampling signal (action.h), or at the
 * one that has been until then (move.h). */
#ifndef HB_SIGACTION_H
#define HB_SIGACTION_H

#include "sampler/move.h"

HB_INLINE int hb_own_signal(int sig) { return HB_UNLIKELY((uint32_t)sig == hb.signal) && hb_load_relaxed(&hb.on); }

HB_INLINE int hb_is_handler(const void *h) { return h != HB_SIG_DFL && h != HB_SIG_IGN && h != HB_SIG_ERR; }

/* The target is about to install a handler for this signal, or only something else. Is it ours then? A vfork child installs what
 * is its own. hook path */
static HB_NOINLINE int hb_stays_own(int sig, int handler) {
  struct hb_tls *t = hb_self();
  if (hb_thread_ready(t) && (uint32_t)hb_sys1(HB_SYS_getpid, 0) != hb.pid) return 0;
  if (handler && !hb_handles(hb_app_action())) hb_signal_move(t, (uint32_t)sig);
  return hb_own_signal(sig);
}
HB_INLINE int hb_keeps_signal(int sig, int handler) { return hb_own_signal(sig) && hb_stays_own(sig, handler); }

/* libc's struct sigaction on this ABI: handler, mask (1024 bits), flags, restorer */
struct hb_libc_sigaction {
  void *handler;
  uint64_t mask[16];
  int flags;
  void *restorer;
};

static int hb_own_sigaction(const struct hb_libc_sigaction *act, struct hb_libc_sigaction *old) {
  struct hb_sigaction a = {0, 0, 0, 0}, was;
  if (act) a = (struct hb_sigaction){act->handler, (unsigned long)(unsigned)act->flags & ~HB_SA_RESTORER, NULL, act->mask[0]};
  long r = hb_own_action(act ? &a : NULL, &was);
  if (hb_is_err(r)) return (int)hb_fail((int)-r);
  if (old) {
    memset(old, 0, sizeof *old);
    old->handler = was.handler;
    old->flags = (int)(was.flags & ~HB_SA_RESTORER);
    old->mask[0] = was.mask;
  }
  return 0;
}

#define HB_SIGACTION(symbol)                                                                            \
  HB_EXPORT int symbol(int sig, const struct hb_libc_sigaction *act, struct hb_libc_sigaction *old) {   \
    typedef int (*fn)(int, const void *, void *);                                                       \
    fn real = HB_REAL(fn, symbol);                                                                      \
    if (!real) return (int)hb_fail(HB_ENOSYS);                                                          \
    int own = act ? hb_keeps_signal(sig, hb_is_handler(act->handler)) : hb_own_signal(sig);             \
    return own ? hb_own_sigaction(act, old) : real(sig, act, old);                                      \
  }
HB_SIGACTION(sigaction)
HB_SIGACTION(__sigaction)

/* The older functions, which call sigaction(2) inside the C library. What they set besides the handler is POSIX's and
 * glibc's (signal/signal.c, sysv_signal.c, sigset.c, siginterrupt.c). hook path */
static void *hb_own_handler(void *handler, unsigned long flags, uint64_t mask) {
  struct hb_sigaction a = {handler, flags, NULL, mask}, old;
  if (handler == HB_SIG_ERR) {
    hb_fail(HB_EINVAL);
    return HB_SIG_ERR;
  }
  hb_own_action(&a, &old);
  return old.handler;
}

static _Atomic uint32_t hb_interrupts; /* siginterrupt(3) has said that our signal's handlers end calls */

#define HB_SIGNAL(symbol, own_flags, mask)                                                 \
  HB_EXPORT void *symbol(int sig, void *handler) {                                         \
    typedef void *(*fn)(int, void *);                                                      \
    fn real = HB_REAL(fn, symbol);                                                         \
    if (!real) return (void *)hb_fail(HB_ENOSYS);                                          \
    return hb_keeps_signal(sig, hb_is_handler(handler)) ? hb_own_handler(handler, own_flags, mask) : real(sig, handler); \
  }
HB_SIGNAL(signal, hb_load_relaxed(&hb_interrupts) ? 0 : HB_SA_RESTART, hb_signal_bit())
HB_SIGNAL(bsd_signal, hb_load_relaxed(&hb_interrupts) ? 0 : HB_SA_RESTART, hb_signal_bit())
HB_SIGNAL(ssignal, hb_load_relaxed(&hb_interrupts) ? 0 : HB_SA_RESTART, hb_signal_bit())
HB_SIGNAL(sysv_signal, HB_SA_RESETHAND | HB_SA_NODEFER, 0)
HB_SIGNAL(__sysv_signal, HB_SA_RESETHAND | HB_SA_NODEFER, 0)

HB_EXPORT int siginterrupt(int sig, int interrupts) {
  typedef int (*fn)(int, int);
  fn real = HB_REAL(fn, siginterrupt);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  if (!hb_keeps_signal(sig, 1)) return real(sig, interrupts);
  struct hb_sigaction a = *hb_app_action();
  hb_store_relaxed(&hb_interrupts, (uint32_t)(interrupts != 0));
  a.flags = interrupts ? a.flags & ~HB_SA_RESTART : a.flags | HB_SA_RESTART;
  hb_own_action(&a, NULL);
  return 0;
}

/* The kernel's own, by number. hook path */
static long hb_own_syscall(const struct hb_sigaction *act, struct hb_sigaction *old) {
  struct hb_sigaction a = {0, 0, 0, 0};
  if (act) a = *act, a.flags &= ~HB_SA_RESTORER;
  long r = hb_own_action(act ? &a : NULL, old);
  return hb_is_err(r) ? hb_fail((int)-r) : r;
}

#endif
