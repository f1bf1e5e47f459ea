/* c11.h: C11's mutexes, conditions and threads (<threads.h>). glibc's and musl's are their pthread kin behind the same
 * memory, called by names that cannot be interposed, with results of their own: thrd_success 0, thrd_busy 1, thrd_error
 * 2, thrd_nomem 3, thrd_timedout 4 on both. */
#ifndef HB_C11_H
#define HB_C11_H

#include "hooks/cond.h"

enum { HB_THRD_BUSY = 1, HB_THRD_TIMEDOUT = 4 };

/* -errno for the record; hook path */
static int64_t hb_thrd_result(int r) { return r == HB_THRD_TIMEDOUT ? -HB_ETIMEDOUT : -(int64_t)r; }
static uint32_t hb_thrd_flags(int r) { return r == HB_THRD_TIMEDOUT ? HB_RECF_TIMEDOUT : r ? HB_RECF_FAILED : 0u; }

#define HB_MTX_WAIT(symbol, m, call)                                                            \
  do {                                                                                          \
    struct hb_wait w;                                                                           \
    uint32_t owner = hb.mutex_peek ? hb_mutex_owner(m) : 0;                                     \
    struct hb_thread *self = hb_self()->slot;                                                   \
    if (owner && self && owner == self->tid) return (call);                                     \
    struct hb_hold *hold = HB_HOLD_BEGIN(HB_HOOK_##symbol, m);                                  \
    hb_wait_begin(&w, HB_HOOK_##symbol, (uint64_t)(m), owner, HB_FRAME);                        \
    int r = (call);                                                                             \
    if (hb_wait_end(&w, HB_HOOK_##symbol, (uint64_t)(m), 0, hb_thrd_result(r), hb_thrd_flags(r), HB_FRAME)) \
      hb_make_hot((uint64_t)(m));                                                               \
    hb_hold_end(hold, (uint64_t)(m), r == 0);                                                   \
    return r;                                                                                   \
  } while (0)

/* Taken without waiting? Fills r. */
#define HB_MTX_FREE(m, r)                                                          \
  ((hb.mutex_peek && hb_mutex_word(m) != 0) || !hb_real.mtx_trylock                \
       ? 0                                                                         \
       : ((r) = ((hb_lock_fn)hb_real.mtx_trylock)(m)) != HB_THRD_BUSY)

HB_EXPORT HB_GATE HB_NOINLINE int mtx_lock(void *m) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, mtx_lock);
  int got = 0;
  if (HB_UNLIKELY(!real)) return 2;
  if (HB_UNLIKELY(!hb_load_relaxed(&hb.on))) return real(m);
  if (HB_LIKELY(HB_MTX_FREE(m, got))) {
    if (HB_UNLIKELY(got == 0 && hb_is_hot((uint64_t)m)))
      hb_hold_end(hb_hold_begin(hb_self(), HB_HOOK_mtx_lock, (uint64_t)m, HB_FRAME), (uint64_t)m, 1);
    return got;
  }
  HB_MTX_WAIT(mtx_lock, m, real(m));
}

HB_EXPORT HB_GATE HB_NOINLINE int mtx_timedlock(void *m, const void *until) {
  hb_timedlock_fn real = HB_REAL(hb_timedlock_fn, mtx_timedlock);
  if (HB_UNLIKELY(!real)) return 2;
  if (!hb_load_relaxed(&hb.on) || (hb.mutex_peek && hb_mutex_word(m) == 0)) return real(m, until);
  HB_MTX_WAIT(mtx_timedlock, m, real(m, until));
}

HB_EXPORT HB_GATE int mtx_unlock(void *m) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, mtx_unlock);
  uint32_t word = hb_mutex_word(m);
  if (HB_UNLIKELY(!real)) return 2;
  if (HB_LIKELY((word <= 1 || !hb.mutex_peek || !hb_mutex_waited(m, word)) && !hb_unlock_watched((uint64_t)m)))
    return real(m);
  return hb_mutex_unlock_long(real, HB_HOOK_mtx_unlock, m);
}

#define HB_CND_WAIT(symbol, c, m, call)                                                                 \
  do {                                                                                                  \
    struct hb_wait w;                                                                                   \
    if (!HB_REAL(void *, symbol)) return 2;                                                             \
    HB_COND_LETS_GO(HB_HOOK_##symbol, m);                                                               \
    hb_wait_begin(&w, HB_HOOK_##symbol, (uint64_t)(c), 0, HB_FRAME);                                    \
    int r = (call);                                                                                     \
    hb_wait_end(&w, HB_HOOK_##symbol, (uint64_t)(c), (uint64_t)(m), hb_thrd_result(r), hb_thrd_flags(r), HB_FRAME); \
    HB_COND_TOOK(HB_HOOK_##symbol, m);                                                                  \
    return r;                                                                                           \
  } while (0)

HB_EXPORT HB_GATE HB_NOINLINE int cnd_wait(void *c, void *m) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(void *, void *);
  HB_CND_WAIT(cnd_wait, c, m, ((fn)hb_real.cnd_wait)(c, m));
}
HB_EXPORT HB_GATE HB_NOINLINE int cnd_timedwait(void *c, void *m, const void *until) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(void *, void *, const void *);
  HB_CND_WAIT(cnd_timedwait, c, m, ((fn)hb_real.cnd_timedwait)(c, m, until));
}
HB_WAKE(cnd_signal, cnd_signal, 0)
HB_WAKE(cnd_broadcast, cnd_broadcast, 1)

HB_EXPORT HB_GATE HB_NOINLINE int thrd_join(uint64_t th, int *value) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(uint64_t, int *);
  fn real = HB_REAL(fn, thrd_join);
  struct hb_wait w;
  if (!real) return 2;
  hb_wait_begin(&w, HB_HOOK_thrd_join, th, 0, HB_FRAME);
  int r = real(th, value);
  hb_wait_end(&w, HB_HOOK_thrd_join, th, 0, hb_thrd_result(r), hb_thrd_flags(r), HB_FRAME);
  return r;
}

#endif
