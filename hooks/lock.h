/* lock.h: mutexes and reader-writer locks.
 *
 * Uncontended, a lock costs one look at its word and the tick gate, an unlock one look at the word and the
 * waiter count. glibc's mutex layout (sysdeps/nptl/bits/struct_mutex.h: lock word at 0, owner's tid at 8, kind
 * at 16; of a recursive one, how often it was taken at 4) is checked on a mutex of our own at start; where it is not that (musl), locks are tried before they are
 * waited for, and every result but EBUSY is final: trying again would lock a robust mutex twice. */
#ifndef HB_LOCK_H
#define HB_LOCK_H

#include "hooks/hold.h"

typedef int (*hb_lock_fn)(void *);
typedef int (*hb_timedlock_fn)(void *, const void *);
typedef int (*hb_clocklock_fn)(void *, int, const void *);

HB_INLINE uint32_t hb_mutex_word(const void *m) { return hb_load_relaxed((const _Atomic uint32_t *)m); }
HB_INLINE uint32_t hb_mutex_owner(const void *m) { return hb_load_relaxed((const _Atomic uint32_t *)m + 2); }
HB_INLINE uint32_t hb_mutex_kind(const void *m) { return hb_load_relaxed((const _Atomic uint32_t *)m + 4); }

/* Does the lock word say that somebody waits? Robust (0x10) and priority-inheriting (0x20) mutexes hold the
 * owner's tid and a waiters bit, priority-protected ones (0x40) their ceiling above bit 19. hook path */
static int hb_mutex_waited(const void *m, uint32_t word) {
  uint32_t kind = hb_mutex_kind(m);
  if (kind & 0x30) return (word & 0x80000000u) != 0;
  if (kind & 0x40) return (word & 0x7ffff) > 1;
  return word > 1;
}

/* Taken more than once by its owner: this unlock lets nobody go on. */
static int hb_mutex_nested(const void *m) {
  return (hb_mutex_kind(m) & 3) == 1 && hb_load_relaxed((const _Atomic uint32_t *)m + 1) > 1;
}

/* Layout check on a mutex of our own. init only */
static void hb_mutex_check(void) {
  static uint64_t probe[8]; /* PTHREAD_MUTEX_INITIALIZER is all zeroes on every libc we know */
  hb_lock_fn lock = (hb_lock_fn)hb_real.pthread_mutex_lock, unlock = (hb_lock_fn)hb_real.pthread_mutex_unlock;
  if (!lock || !unlock || lock(probe)) return;
  int held = hb_mutex_word(probe) == 1 && hb_mutex_owner(probe) == (uint32_t)hb_sys1(HB_SYS_gettid, 0);
  int freed = !unlock(probe) && hb_mutex_word(probe) == 0 && hb_mutex_owner(probe) == 0;
  hb.mutex_peek = held && freed && hb.is_glibc;
  if (hb.mutex_peek) hb.lock_fast = lock;
}

HB_INLINE int hb_taken(int r) { return r == 0 || r == HB_EOWNERDEAD; }

#define HB_HOLD_BEGIN(hook, m) \
  (HB_UNLIKELY(hb_is_hot((uint64_t)(m))) ? hb_hold_begin(hb_self(), hook, (uint64_t)(m), HB_FRAME) : NULL)

/* Is a mutex ours, so that locking it again does not wait? Recursive (1) and error-checking (2) ones return; a normal one waits for
 * ever, for its own owner. */
HB_INLINE int hb_mutex_returns(const void *m, uint32_t owner, const struct hb_thread *self) {
  uint32_t kind = hb_mutex_kind(m) & 3;
  return owner && self && owner == self->tid && (kind == 1 || kind == 2);
}

/* Wait for a mutex that is taken. */
#define HB_MUTEX_WAIT(hook, m, call)                                                                    \
  do {                                                                                                  \
    struct hb_wait w;                                                                                   \
    uint32_t owner = hb.mutex_peek ? hb_mutex_owner(m) : 0;                                             \
    struct hb_thread *self = hb_self()->slot;                                                           \
    if (hb_mutex_returns(m, owner, self)) return (call);                                                \
    struct hb_hold *hold = HB_HOLD_BEGIN(hook, m);                                                      \
    hb_wait_begin(&w, hook, (uint64_t)(m), owner, HB_FRAME);                                            \
    int r = (call);                                                                                     \
    if (hb_wait_end(&w, hook, (uint64_t)(m), 0, -(int64_t)r,                                            \
                    r == HB_ETIMEDOUT ? HB_RECF_TIMEDOUT : r ? HB_RECF_FAILED : 0u, HB_FRAME))          \
      hb_make_hot((uint64_t)(m));                                                                       \
    hb_hold_end(hold, (uint64_t)(m), hb_taken(r));                                                      \
    return r;                                                                                           \
  } while (0)

static HB_GATE HB_NOINLINE int hb_mutex_lock_long(void *m) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, pthread_mutex_lock);
  struct hb_tls *t = hb_self();
  if (!real) return HB_ENOSYS;
  if (!hb_load_relaxed(&hb.on)) return real(m);
  if (hb.mutex_peek) {
    if (hb_mutex_word(m) == 0) {
      if (hb_new_tick(t)) hb_sample_hook(t, HB_SAMPLE_SYNC, HB_HOOK_pthread_mutex_lock, (uint64_t)m, HB_FRAME);
      struct hb_hold *hold = HB_HOLD_BEGIN(HB_HOOK_pthread_mutex_lock, m);
      if (!hold) return real(m);
      int r = real(m);
      hb_hold_end(hold, (uint64_t)m, hb_taken(r));
      return r;
    }
  } else if (hb_real.pthread_mutex_trylock) {
    int r = ((hb_lock_fn)hb_real.pthread_mutex_trylock)(m);
    if (r != HB_EBUSY) return r;
  }
  HB_MUTEX_WAIT(HB_HOOK_pthread_mutex_lock, m, real(m));
}

HB_EXPORT HB_GATE int pthread_mutex_lock(void *m) {
  struct hb_tls *t = hb_self();
  hb_saw_depth(t, HB_CFA);
  hb_lock_fn real = hb.lock_fast;
  if (HB_LIKELY(real && hb_mutex_word(m) == 0 && !hb_new_tick(t) && !hb_is_hot((uint64_t)m))) return real(m);
  return hb_mutex_lock_long(m);
}

/* Tried, and taken: its stack is left afterwards, since many a try fails. hook path */
static HB_GATE HB_NOINLINE int hb_try_hot(hb_lock_fn real, uint32_t hook, void *m, int (*taken)(int)) {
  int r = real(m);
  if (taken(r)) hb_hold_end(hb_hold_begin(hb_self(), hook, (uint64_t)m, HB_FRAME), (uint64_t)m, 1);
  return r;
}

HB_EXPORT HB_GATE int pthread_mutex_trylock(void *m) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, pthread_mutex_trylock);
  if (HB_UNLIKELY(!real)) return HB_ENOSYS;
  if (HB_UNLIKELY(hb_is_hot((uint64_t)m))) return hb_try_hot(real, HB_HOOK_pthread_mutex_trylock, m, hb_taken);
  return real(m);
}

HB_EXPORT HB_GATE HB_NOINLINE int pthread_mutex_timedlock(void *m, const void *until) {
  hb_timedlock_fn real = HB_REAL(hb_timedlock_fn, pthread_mutex_timedlock);
  if (!real) return HB_ENOSYS;
  if (hb.mutex_peek && hb_mutex_word(m) == 0) return real(m, until);
  HB_MUTEX_WAIT(HB_HOOK_pthread_mutex_timedlock, m, real(m, until));
}

HB_EXPORT HB_GATE HB_NOINLINE int pthread_mutex_clocklock(void *m, int clock, const void *until) {
  hb_clocklock_fn real = HB_REAL(hb_clocklock_fn, pthread_mutex_clocklock);
  if (!real) return HB_ENOSYS;
  if (hb.mutex_peek && hb_mutex_word(m) == 0) return real(m, clock, until);
  HB_MUTEX_WAIT(HB_HOOK_pthread_mutex_clocklock, m, real(m, clock, until));
}

/* waited: the lock's own memory says that somebody waits. hook path */
static HB_GATE HB_NOINLINE int hb_unlock_long(hb_lock_fn real, uint32_t hook, void *m, int waited) {
  struct hb_tls *t = hb_self();
  uint32_t waiting = hb_waiters((uint64_t)m);
  struct hb_hold *hold = hb_hold_of(t, (uint64_t)m);
  if (!waiting && !waited) { /* hot, and nobody there */
    if (hold) hb_hold_drop(t, hold);
    return real(m);
  }
  uint64_t now = 0, held_ns = hb_held_ns(hold), debt = hb_release_begin(t, (uint64_t)m, held_ns, &now);
  int r = real(m); /* from here on m may be gone: only our own tables are touched */
  if (HB_UNLIKELY(debt && r == 0)) hb_emit_release(t, hook, 0u, (uint64_t)m, now, debt, waiting, hold, held_ns, HB_FRAME);
  if (hold && r == 0 && hold->object == (uint64_t)m) hb_hold_drop(t, hold);
  return r;
}

static HB_GATE HB_NOINLINE int hb_mutex_unlock_long(hb_lock_fn real, uint32_t hook, void *m) {
  if (hb.mutex_peek && hb_mutex_nested(m)) return real(m);
  return hb_unlock_long(real, hook, m, hb.mutex_peek && hb_mutex_waited(m, hb_mutex_word(m)));
}

static HB_NOINLINE int hb_gil_unlock(hb_lock_fn real, void *m); /* gil.h */

HB_EXPORT HB_GATE int pthread_mutex_unlock(void *m) {
  hb_lock_fn real = (hb_lock_fn)hb_real.pthread_mutex_unlock;
  uint32_t word = hb_mutex_word(m);
  if (HB_UNLIKELY(!real)) {
    real = HB_REAL(hb_lock_fn, pthread_mutex_unlock);
    return real ? real(m) : HB_ENOSYS;
  }
  if (HB_UNLIKELY((uint64_t)m == hb_load_relaxed(&hb.gil.mutex))) return hb_gil_unlock(real, m);
  if (HB_LIKELY((word <= 1 || !hb.mutex_peek || !hb_mutex_waited(m, word)) && !hb_unlock_watched((uint64_t)m)))
    return real(m);
  return hb_mutex_unlock_long(real, HB_HOOK_pthread_mutex_unlock, m);
}

/* ---- reader-writer locks: tried first, since "taken" depends on who asks ---- */

/* glibc keeps the writer's tid behind six words (struct __pthread_rwlock_arch_t.__cur_writer). */
HB_INLINE uint32_t hb_rwlock_owner(const void *l) {
  return hb.mutex_peek ? hb_load_relaxed((const _Atomic uint32_t *)l + 6) : 0;
}

/* Would the C library refuse the time, or the clock, before it looks at the lock? Trying first would take it. hook path */
HB_INLINE int hb_time_refused(int clock, const void *until) {
  const struct hb_timespec *t = until;
  return (clock != 0 && clock != HB_CLOCK_MONOTONIC) || !t || (uint64_t)t->nsec >= 1000000000u;
}

/* refused: the real function is to judge alone */
#define HB_RWLOCK_WAIT(symbol, try, l, refused, call)                                                          \
  do {                                                                                                \
    struct hb_wait w;                                                                                 \
    if (!HB_REAL(void *, symbol)) return HB_ENOSYS;                                                   \
    if (!hb_load_relaxed(&hb.on) || HB_UNLIKELY(refused)) return (call);                              \
    if (hb_real.try) {                                                                                \
      int tried = ((hb_lock_fn)hb_real.try)(l);                                                       \
      if (HB_LIKELY(tried != HB_EBUSY)) {                                                             \
        if (HB_UNLIKELY(tried == 0 && hb_is_hot((uint64_t)(l))))                                      \
          hb_hold_end(hb_hold_begin(hb_self(), HB_HOOK_##symbol, (uint64_t)(l), HB_FRAME), (uint64_t)(l), 1); \
        return tried;                                                                                 \
      }                                                                                               \
    }                                                                                                 \
    struct hb_hold *hold = HB_HOLD_BEGIN(HB_HOOK_##symbol, l);                                        \
    hb_wait_begin(&w, HB_HOOK_##symbol, (uint64_t)(l), hb_rwlock_owner(l), HB_FRAME);                 \
    int r = (call);                                                                                   \
    if (hb_wait_end(&w, HB_HOOK_##symbol, (uint64_t)(l), 0, -(int64_t)r,                              \
                    r == HB_ETIMEDOUT ? HB_RECF_TIMEDOUT : r ? HB_RECF_FAILED : 0u, HB_FRAME))        \
      hb_make_hot((uint64_t)(l));                                                                     \
    hb_hold_end(hold, (uint64_t)(l), r == 0);                                                         \
    return r;                                                                                         \
  } while (0)

HB_EXPORT HB_GATE HB_NOINLINE int pthread_rwlock_rdlock(void *l) {
  HB_RWLOCK_WAIT(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, l, 0, ((hb_lock_fn)hb_real.pthread_rwlock_rdlock)(l));
}
HB_EXPORT HB_GATE HB_NOINLINE int pthread_rwlock_wrlock(void *l) {
  HB_RWLOCK_WAIT(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, l, 0, ((hb_lock_fn)hb_real.pthread_rwlock_wrlock)(l));
}
HB_EXPORT HB_GATE HB_NOINLINE int pthread_rwlock_timedrdlock(void *l, const void *until) {
  HB_RWLOCK_WAIT(pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock, l, hb_time_refused(0, until),
                 ((hb_timedlock_fn)hb_real.pthread_rwlock_timedrdlock)(l, until));
}
HB_EXPORT HB_GATE HB_NOINLINE int pthread_rwlock_timedwrlock(void *l, const void *until) {
  HB_RWLOCK_WAIT(pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock, l, hb_time_refused(0, until),
                 ((hb_timedlock_fn)hb_real.pthread_rwlock_timedwrlock)(l, until));
}
HB_EXPORT HB_GATE HB_NOINLINE int pthread_rwlock_clockrdlock(void *l, int clock, const void *until) {
  HB_RWLOCK_WAIT(pthread_rwlock_clockrdlock, pthread_rwlock_tryrdlock, l, hb_time_refused(clock, until),
                 ((hb_clocklock_fn)hb_real.pthread_rwlock_clockrdlock)(l, clock, until));
}
HB_EXPORT HB_GATE HB_NOINLINE int pthread_rwlock_clockwrlock(void *l, int clock, const void *until) {
  HB_RWLOCK_WAIT(pthread_rwlock_clockwrlock, pthread_rwlock_trywrlock, l, hb_time_refused(clock, until),
                 ((hb_clocklock_fn)hb_real.pthread_rwlock_clockwrlock)(l, clock, until));
}

HB_EXPORT HB_GATE int pthread_rwlock_unlock(void *l) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, pthread_rwlock_unlock);
  if (HB_UNLIKELY(!real)) return HB_ENOSYS;
  if (HB_LIKELY(!hb_unlock_watched((uint64_t)l))) return real(l);
  return hb_unlock_long(real, HB_HOOK_pthread_rwlock_unlock, l, 0);
}

/* ---- spin locks: the waiter burns CPU time, which sampling points book inside the call (sampler/points.h) ---- */

HB_EXPORT HB_GATE HB_NOINLINE int pthread_spin_lock(void *l) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, pthread_spin_lock), try = (hb_lock_fn)hb_real.pthread_spin_trylock;
  if (HB_UNLIKELY(!real)) return HB_ENOSYS;
  if (HB_UNLIKELY(!try || !hb_load_relaxed(&hb.on))) return real(l);
  int r = try(l);
  if (HB_LIKELY(r != HB_EBUSY)) {
    if (HB_UNLIKELY(r == 0 && hb_is_hot((uint64_t)l)))
      hb_hold_end(hb_hold_begin(hb_self(), HB_HOOK_pthread_spin_lock, (uint64_t)l, HB_FRAME), (uint64_t)l, 1);
    return r;
  }
  struct hb_hold *hold = HB_HOLD_BEGIN(HB_HOOK_pthread_spin_lock, l);
  struct hb_wait w;
  hb_wait_begin(&w, HB_HOOK_pthread_spin_lock, (uint64_t)l, 0, HB_FRAME);
  r = real(l);
  if (hb_wait_end(&w, HB_HOOK_pthread_spin_lock, (uint64_t)l, 0, -(int64_t)r, r ? HB_RECF_FAILED : 0u, HB_FRAME))
    hb_make_hot((uint64_t)l);
  hb_hold_end(hold, (uint64_t)l, r == 0);
  return r;
}

HB_EXPORT HB_GATE int pthread_spin_unlock(void *l) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, pthread_spin_unlock);
  if (HB_UNLIKELY(!real)) return HB_ENOSYS;
  if (HB_LIKELY(!hb_unlock_watched((uint64_t)l))) return real(l);
  return hb_unlock_long(real, HB_HOOK_pthread_spin_unlock, l, 0);
}

#endif
