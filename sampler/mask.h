/* mask.h: the target blocks and unblocks the sampling signal; the slot's state follows.
 *
 * A signal of ours that stays pending on a thread that has it blocked would swallow the next one that the target sends
 * there, or be handed to its sigwait. So the change is made inside a proxied section (what is in flight is taken
 * first), and while the signal is blocked the thread rests in MASKED, where nobody signals it; but for threads that lend it (lend.h).
 * Not seen: masks changed by raw system calls, by siglongjmp or setcontext, and by sa_mask during the target's own
 * handlers. There a pending signal is taken at the next proxied call. */
#ifndef HB_MASK_H
#define HB_MASK_H

#include "agent/real.h"
#include "sampler/handler.h"

typedef int (*hb_mask_fn)(int, const uint64_t *, uint64_t *);

/* hook path; keeps errno and result of the real call */
static HB_NOINLINE int hb_change_mask(hb_mask_fn real, int how, const uint64_t *set, uint64_t *old) {
  struct hb_tls *t = hb_self();
  struct hb_block b;
  uint64_t mask;
  int lent = hb_lent(t);
  if (HB_UNLIKELY(t->flags & HB_TLS_LENT) && (!lent || hb_lent_still(t, &mask))) { /* whoever asks believes it blocked, also a vfork child */
    uint64_t copy[16];
    const uint64_t *to = lent ? hb_lent_set(t, mask, how, set, copy) : set;
    if (!to && set) hb_lend_end(t);
    int r = real(how, to ? to : set, old);
    if (r == 0 && old) old[0] |= hb_signal_bit();
    return r;
  }
  if (HB_UNLIKELY((t->flags & HB_TLS_MOVED) != hb.moved) && t->slot) hb_signal_followed(t);
  uint64_t named = set ? set[0] & hb_signal_bit() : 0;
  int changes = set && (how == HB_SIG_SETMASK ? (named != 0) != ((t->flags & HB_TLS_BLOCKED) != 0)
                                              : named && (how == HB_SIG_BLOCK) != ((t->flags & HB_TLS_BLOCKED) != 0));
  int ready = changes && hb_thread_ready(t);
  if (ready) hb_block_enter(t, t->slot, &b, HB_FRAME);
  int r = real(how, set, old);
  if (ready) {
    if (r == 0 && !b.passive) hb_rest_set(t, HB_TLS_BLOCKED, !(t->flags & HB_TLS_BLOCKED));
    hb_block_leave(t, t->slot, &b);
  }
  if (HB_UNLIKELY(t->flags & HB_TLS_BLOCKED) && r == 0 && set) hb_signal_alone(t);
  return r;
}

#define HB_MASK(symbol)                                                        \
  HB_EXPORT int symbol(int how, const uint64_t *set, uint64_t *old) {          \
    hb_mask_fn real = HB_REAL(hb_mask_fn, symbol);                             \
    if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);                    \
    if (!hb_load_relaxed(&hb.on) && !(hb_self()->flags & HB_TLS_LENT))         \
      return real(how, set, old);                                              \
    return hb_change_mask(real, how, set, old);                                \
  }
HB_MASK(pthread_sigmask)
HB_MASK(sigprocmask)

/* System V's, for our signal: made of the functions above. */
HB_EXPORT void *sigset(int sig, void *handler) {
  typedef void *(*fn)(int, void *);
  fn real = HB_REAL(fn, sigset);
  if (!real) return (void *)hb_fail(HB_ENOSYS);
  if (!hb_keeps_signal(sig, handler != HB_SIG_HOLD && hb_is_handler(handler))) return real(sig, handler);
  uint64_t set[16] = {hb_signal_bit()}, before[16] = {0};
  void *was = hb_app_action()->handler;
  if (handler == HB_SIG_ERR) {
    hb_fail(HB_EINVAL);
    return HB_SIG_ERR;
  }
  if (handler != HB_SIG_HOLD) was = hb_own_handler(handler, 0, 0);
  if (sigprocmask(handler == HB_SIG_HOLD ? HB_SIG_BLOCK : HB_SIG_UNBLOCK, set, before)) return HB_SIG_ERR;
  return before[0] & hb_signal_bit() ? HB_SIG_HOLD : was;
}

HB_EXPORT int sigignore(int sig) {
  typedef int (*fn)(int);
  fn real = HB_REAL(fn, sigignore);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  if (!hb_keeps_signal(sig, 0)) return real(sig);
  hb_own_handler(HB_SIG_IGN, 0, 0);
  return 0;
}

#endif
