/* cond.h: condition variables, semaphores, barriers, joins, and futexes through syscall(2), which is how Rust's
 * standard library and C++20's atomic waits block. */
#ifndef HB_COND_H
#define HB_COND_H

#include "hooks/call.h"
#include "hooks/confine.h"
#include "hooks/gil.h"
#include "hooks/lock.h"
#include "sampler/altstack.h"

/* Waiting on a condition lets go of its mutex first: leave that baton too, and forget where it was taken; it is taken
 * again here. Cancellation may unwind through. */
static HB_GATE HB_NOINLINE void hb_cond_lets_go(uint64_t m, int waited, uint32_t hook, const void *frame) {
  struct hb_tls *t = hb_self();
  struct hb_hold *hold = hb_hold_of(t, m);
  uint32_t waiting = hb_waiters(m);
  if (waiting || waited) {
    uint64_t now = 0, held_ns = hb_held_ns(hold), debt = hb_release_begin(t, m, held_ns, &now);
    if (debt) hb_emit_release(t, hook, 0u, m, now, debt, waiting, hold, held_ns, frame);
  }
  if (hold) hb_hold_drop(t, hold);
}

/* A record of it is written before the mutex is let go, for once: the wait that follows has no end in sight. */
#define HB_COND_LETS_GO(hook, m)                                                                          \
  do {                                                                                                    \
    int waited = hb.mutex_peek && hb_mutex_waited(m, hb_mutex_word(m));                                   \
    if (waited || hb_unlock_watched((uint64_t)(m))) hb_cond_lets_go((uint64_t)(m), waited, hook, HB_FRAME);      \
  } while (0)

#define HB_COND_TOOK(hook, m)                                                                             \
  do {                                                                                                    \
    if (HB_UNLIKELY(hb_is_hot((uint64_t)(m))))                                                            \
      hb_hold_end(hb_hold_begin(hb_self(), hook, (uint64_t)(m), HB_FRAME), (uint64_t)(m), 1);             \
  } while (0)

#define HB_COND_WAIT(symbol, c, m, call)                                                                  \
  do {                                                                                                    \
    struct hb_wait w;                                                                                     \
    if (!HB_REAL(void *, symbol)) return HB_ENOSYS;                                                       \
    if (hb_is_gil(&hb.gil.cond, c)) HB_GIL_WAIT(call);                                                    \
    HB_COND_LETS_GO(HB_HOOK_##symbol, m);                                                                 \
    hb_wait_begin(&w, HB_HOOK_##symbol, (uint64_t)(c), 0, HB_FRAME);                                      \
    int r = (call);                                                                                       \
    hb_wait_end(&w, HB_HOOK_##symbol, (uint64_t)(c), (uint64_t)(m), -(int64_t)r,                          \
                r == HB_ETIMEDOUT ? HB_RECF_TIMEDOUT : r ? HB_RECF_FAILED : 0u, HB_FRAME);                \
    HB_COND_TOOK(HB_HOOK_##symbol, m);                                                                    \
    return r;                                                                                             \
  } while (0)

HB_EXPORT HB_GATE HB_NOINLINE int HB_VERSIONED(pthread_cond_wait)(void *c, void *m) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(void *, void *);
  HB_COND_WAIT(pthread_cond_wait, c, m, ((fn)hb_real.pthread_cond_wait)(c, m));
}
HB_EXPORT HB_GATE HB_NOINLINE int HB_VERSIONED(pthread_cond_timedwait)(void *c, void *m, const void *until) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(void *, void *, const void *);
  HB_COND_WAIT(pthread_cond_timedwait, c, m, ((fn)hb_real.pthread_cond_timedwait)(c, m, until));
}
HB_EXPORT HB_GATE HB_NOINLINE int pthread_cond_clockwait(void *c, void *m, int clock, const void *until) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(void *, void *, int, const void *);
  HB_COND_WAIT(pthread_cond_clockwait, c, m, ((fn)hb_real.pthread_cond_clockwait)(c, m, clock, until));
}

/* Waking a waiting thread is never gated: joining waits with wake-ups needs every wake-up (hb_all_woken). The record carries the
 * waker's stack when the delay that it ended is worth one. Written after the call, so that nobody waits for it.
 * A signaller may sleep: glibc's lets the waiters of earlier signals leave first (__condvar_quiesce_and_switch_g1). That is a
 * call of the program's, recorded like a wait of 50 us; the last one to leave is found among them when records are put together. hook path */
static HB_GATE HB_NOINLINE int hb_wake_long(hb_lock_fn real, uint32_t hook, void *object, uint32_t shared) {
  struct hb_tls *t = hb_self();
  struct hb_call call = {0};
  uint32_t waiting = shared ? shared : hb_waiters((uint64_t)object);
  if (hook != HB_HOOK_sem_post) hb_call_enter(&call, hook, (uint64_t)object, 0, HB_FRAME);
  uint64_t now = 0, debt = hb_release_begin(t, (uint64_t)object, UINT64_MAX, &now), stamp = now ? hb_stamp() : 0;
  int r = real(object);
  uint64_t lasted = now ? hb_stamp_ns(stamp, hb_stamp()) : 0;
  if (now && shared && debt == 0 && t->wait_threshold_ns <= hb.lock_threshold_ns) { /* of what others waited nothing is known */
    debt = 1;
    hb_wait_adapt(t);
  }
  if (now && hb.features & HB_FEATURE_LOCK) hb_emit_release(t, hook, shared ? HB_RECF_SHARED : 0u, (uint64_t)object, now, debt, waiting, NULL, lasted, HB_FRAME);
  if (call.slot) hb_call_left(&call, hook, (uint64_t)object, r, HB_ERROR, hb.wake_threshold, HB_FRAME);
  return r;
}

/* What glibc keeps of a condition, up to 2.40 (nptl, struct __pthread_cond_s), in words: 0 wseq, 2 g1_start, 4 g_refs[2],
 * 6 g_size[2], 8 g1_orig_size, 9 wrefs. Is there a thread that waits and has not been signalled
 * (__condvar_quiesce_and_switch_g1)? hook path */
HB_INLINE int hb_cond_unsignalled(const void *c) {
  const _Atomic uint32_t *w = c;
  uint64_t wseq = hb_load_relaxed((const _Atomic uint64_t *)c), start = hb_load_relaxed((const _Atomic uint64_t *)c + 1);
  uint32_t g2 = (uint32_t)wseq & 1;
  if (hb_load_relaxed(w + 6 + (g2 ^ 1))) return 1;
  return (uint32_t)((wseq >> 1) - (start >> 1) - (hb_load_relaxed(w + 8) >> 2)) + hb_load_relaxed(w + 6 + g2) != 0;
}

/* Is that the layout? The check waits on a condition of its own until a time that is over: such a wait counts in wseq, and
 * is taken off the size of its group. init only */
static void hb_cond_check(void) {
  static uint64_t cond[6], mutex[8];
  static const struct hb_timespec past = {-1, 0}; /* glibc returns without a system call */
  int (*wait)(void *, void *, const void *) = (int (*)(void *, void *, const void *))hb_real.pthread_cond_timedwait;
  hb_lock_fn lock = (hb_lock_fn)hb_real.pthread_mutex_lock, unlock = (hb_lock_fn)hb_real.pthread_mutex_unlock;
  if (!hb.mutex_peek || !wait || lock(mutex)) return;
  int r = wait(cond, mutex, &past);
  unlock(mutex);
  hb.cond_peek = r == HB_ETIMEDOUT && cond[0] == 2 && cond[1] == 0 && cond[2] == 0 && cond[3] == UINT32_MAX &&
                 cond[4] == 0 && !hb_cond_unsignalled(cond);
}

/* Will a signal of this condition wake no thread? Each waiting thread has been signalled, and has only not left its wait yet:
 * the C library drops the signal. In a busy queue that is most signals, since a woken thread needs some 50 us until it runs.
 *
 * Two counts have to agree: the C library's, and woken[], the threads that signals have woken. Each recorded signal adds one to
 * it, a broadcast all that wait; each thread that leaves its wait, whatever ended it, takes one off. The C library's alone
 * might be another version's. woken[] alone, where the signaller does not hold the mutex, takes a thread that is counted and
 * does not wait yet for one that was woken. hook path */
HB_INLINE int hb_all_woken(const void *object) {
  uint32_t i = hb_bucket((uint64_t)object), waiting = hb_load_relaxed(&hb.wiped->waiters[i]) & ~HB_HOT;
  return waiting == 0 ||
         (hb.cond_peek && hb_load_relaxed(&hb.wiped->woken[i]) >= waiting && !hb_cond_unsignalled(object));
}

/* One more thread, or all that wait, are about to be woken. hook path */
static void hb_woken_add(uint64_t object, int all) {
  uint32_t i = hb_bucket(object);
  if (all) hb_store_relaxed(&hb.wiped->woken[i], hb_waiters(object));
  else hb_add_relaxed(&hb.wiped->woken[i], 1u);
}

#define HB_WAKE(name, symbol, all)                                            \
  HB_EXPORT HB_GATE int name(void *object) {                                          \
    hb_lock_fn real = HB_REAL(hb_lock_fn, symbol);                            \
    if (HB_UNLIKELY(!real)) return HB_ENOSYS;                                 \
    if (hb_is_gil(&hb.gil.cond, object) || hb_is_gil(&hb.gil.switch_cond, object)) return hb_gil_signal(real, object); \
    if (HB_LIKELY(hb_all_woken(object))) return real(object);                 \
    hb_woken_add((uint64_t)object, all);                                      \
    return hb_wake_long(real, HB_HOOK_##symbol, object, 0);                   \
  }
HB_WAKE(HB_VERSIONED(pthread_cond_signal), pthread_cond_signal, 0)
HB_WAKE(HB_VERSIONED(pthread_cond_broadcast), pthread_cond_broadcast, 1)

/* ---- semaphores: the value is the first word on glibc (64-bit) and musl. On glibc (internaltypes.h, struct new_sem) the number
 * of waiters is the second, and the third is 128 where processes share it: then they may wait in any of them ---- */

HB_INLINE uint32_t hb_sem_shared(const void *s) {
  return hb.is_glibc && hb_load_relaxed((const _Atomic uint32_t *)s + 2) == 128;
}

HB_EXPORT HB_GATE int sem_post(void *s) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, sem_post);
  if (HB_UNLIKELY(!real)) return HB_ENOSYS;
  uint32_t waiting = hb_sem_shared(s) ? hb_load_relaxed((const _Atomic uint32_t *)s + 1) : 0;
  if (HB_LIKELY((waiting | hb_waiters((uint64_t)s)) == 0)) return real(s);
  return hb_wake_long(real, HB_HOOK_sem_post, s, waiting);
}

HB_INLINE int hb_sem_free(const void *s) { return (int32_t)hb_load_relaxed((const _Atomic uint32_t *)s) > 0; }

#define HB_SEM_WAIT(symbol, s, call)                                                        \
  do {                                                                                      \
    struct hb_wait w;                                                                       \
    if (!HB_REAL(void *, symbol)) return (int)hb_fail(HB_ENOSYS);                           \
    if (hb_sem_free(s)) return (call);                                                      \
    hb_wait_begin(&w, HB_HOOK_##symbol, (uint64_t)(s), 0, HB_FRAME);                        \
    int r = (call);                                                                         \
    while (HB_UNLIKELY(r == -1) && w.slot && hb_ended(HB_HOOK_##symbol, w.began, HB_FRAME)) r = (call);                 \
    int64_t e = w.slot ? hb_result(r) : r;                                                  \
    hb_wait_end(&w, HB_HOOK_##symbol, (uint64_t)(s), 0, e, hb_result_flags(e) | (hb_sem_shared(s) ? HB_RECF_SHARED : 0u), HB_FRAME); \
    return r;                                                                               \
  } while (0)

HB_EXPORT HB_GATE HB_NOINLINE int sem_wait(void *s) {
  HB_UNWIND_SCOPE;
  HB_SEM_WAIT(sem_wait, s, ((hb_lock_fn)hb_real.sem_wait)(s));
}
HB_EXPORT HB_GATE HB_NOINLINE int sem_timedwait(void *s, const void *until) {
  HB_UNWIND_SCOPE;
  HB_SEM_WAIT(sem_timedwait, s, ((hb_timedlock_fn)hb_real.sem_timedwait)(s, until));
}
HB_EXPORT HB_GATE HB_NOINLINE int sem_clockwait(void *s, int clock, const void *until) {
  HB_UNWIND_SCOPE;
  HB_SEM_WAIT(sem_clockwait, s, ((hb_clocklock_fn)hb_real.sem_clockwait)(s, clock, until));
}

/* ---- barriers: everybody who arrives leaves the baton; the last one's is the one that releases ---- */

HB_EXPORT HB_GATE HB_NOINLINE int pthread_barrier_wait(void *b) {
  hb_lock_fn real = HB_REAL(hb_lock_fn, pthread_barrier_wait);
  struct hb_wait w;
  if (!real) return HB_ENOSYS;
  hb_wait_begin(&w, HB_HOOK_pthread_barrier_wait, (uint64_t)b, 0, HB_FRAME);
  if (w.slot) hb_baton_leave(&hb.wiped->locks[w.bucket], (uint64_t)b, w.start_ns, hb_self()->uid);
  int r = real(b);
  hb_wait_end(&w, HB_HOOK_pthread_barrier_wait, (uint64_t)b, 0, r, 0, HB_FRAME);
  return r;
}

/* ---- joins: the object is the pthread_t, which is the thread's control block; its exit leaves the baton ---- */

#define HB_JOIN(symbol, params, args)                                                                        \
  HB_EXPORT HB_GATE HB_NOINLINE int symbol params {                                                                  \
    HB_UNWIND_SCOPE;                                                                                         \
    typedef int(*fn) params;                                                                                 \
    fn real = HB_REAL(fn, symbol);                                                                           \
    struct hb_wait w;                                                                                        \
    if (!real) return HB_ENOSYS;                                                                             \
    hb_wait_begin(&w, HB_HOOK_##symbol, th, 0, HB_FRAME);                                                    \
    int r = real args;                                                                                       \
    hb_wait_end(&w, HB_HOOK_##symbol, th, 0, -(int64_t)r, r == HB_ETIMEDOUT ? HB_RECF_TIMEDOUT : r ? HB_RECF_FAILED : 0u, \
                HB_FRAME);                                                                                   \
    return r;                                                                                                \
  }
HB_JOIN(pthread_join, (uint64_t th, void **value), (th, value))
HB_JOIN(pthread_timedjoin_np, (uint64_t th, void **value, const void *until), (th, value, until))
HB_JOIN(pthread_clockjoin_np, (uint64_t th, void **value, int clock, const void *until), (th, value, clock, until))

/* The calling thread is about to end: tell whoever joins it. hook path */
static void hb_join_release(struct hb_tls *t) {
  uint64_t self = hb_pthread_self();
  if (hb_waiters(self) == 0 || !hb_thread_ready(t)) return;
  uint64_t now = hb_now_ns();
  hb_baton_leave(&hb.wiped->locks[hb_bucket(self)], self, now, t->uid);
  hb_emit_release(t, HB_HOOK_pthread_exit, 0u, self, now, 1, 1, NULL, 0, HB_FRAME); /* a debt of 1: with its stack */
  hb_compiler_barrier(); /* no tail call: the frame must still be there */
}

/* ---- futex(2) through syscall(3) ---- */

enum { HB_FUTEX_WAIT, HB_FUTEX_WAKE, HB_FUTEX_FD, HB_FUTEX_REQUEUE, HB_FUTEX_CMP_REQUEUE, HB_FUTEX_WAKE_OP,
       HB_FUTEX_LOCK_PI, HB_FUTEX_UNLOCK_PI, HB_FUTEX_TRYLOCK_PI, HB_FUTEX_WAIT_BITSET, HB_FUTEX_WAKE_BITSET,
       HB_FUTEX_WAIT_REQUEUE_PI, HB_FUTEX_CMP_REQUEUE_PI, HB_FUTEX_LOCK_PI2 };

typedef long (*hb_syscall_fn)(long, long, long, long, long, long, long);

/* These take syscall's own arguments, so that it reaches them by a jump and their caller is the program. */
static HB_GATE HB_NOINLINE long hb_futex_wait(long n, long a, long b, long c, long d, long e, long f) {
  struct hb_wait w;
  hb_wait_begin(&w, HB_HOOK_futex_wait, (uint64_t)a, 0, HB_FRAME);
  long r = ((hb_syscall_fn)hb_real.syscall)(n, a, b, c, d, e, f);
  int64_t res = w.slot ? hb_result(r) : r;
  uint32_t flags = res == -HB_EAGAIN ? 0u : hb_result_flags(res); /* EAGAIN: the value had changed already */
  hb_wait_end(&w, HB_HOOK_futex_wait, (uint64_t)a, 0, res, flags, HB_FRAME);
  return r;
}

static HB_GATE HB_NOINLINE long hb_futex_wake(long n, long a, long b, long c, long d, long e, long f) {
  struct hb_tls *t = hb_self();
  uint64_t now = 0, debt = hb_waiters((uint64_t)a) ? hb_release_begin(t, (uint64_t)a, UINT64_MAX, &now) : 0;
  uint64_t stamp = now ? hb_stamp() : 0;
  long r = ((hb_syscall_fn)hb_real.syscall)(n, a, b, c, d, e, f);
  if (r > 0 && now && hb.features & HB_FEATURE_LOCK)
    hb_emit_release(t, HB_HOOK_futex_wake, 0u, (uint64_t)a, now, debt, (uint32_t)r, NULL, hb_stamp_ns(stamp, hb_stamp()), HB_FRAME);
  return r;
}

#define HB_FUTEX_SLEEPS                                                                                   \
  (1u << HB_FUTEX_WAIT | 1u << HB_FUTEX_WAIT_BITSET | 1u << HB_FUTEX_LOCK_PI | 1u << HB_FUTEX_LOCK_PI2 |  \
   1u << HB_FUTEX_WAIT_REQUEUE_PI)
#define HB_FUTEX_WAKES                                                                                    \
  (1u << HB_FUTEX_WAKE | 1u << HB_FUTEX_WAKE_BITSET | 1u << HB_FUTEX_REQUEUE | 1u << HB_FUTEX_CMP_REQUEUE | \
   1u << HB_FUTEX_WAKE_OP | 1u << HB_FUTEX_UNLOCK_PI)

/* ---- other calls that can sleep, made by number ---- */

static uint32_t hb_sleeper(long n) {
  switch (n) {
#define HB_SLEEPER(number, symbol) case number: return HB_HOOK_##symbol;
    HB_SLEEPING_SYSCALLS(HB_SLEEPER)
#undef HB_SLEEPER
    default: return 0;
  }
}

/* A call by number that is made again: what is left of its time. The kernel itself shortens those of select, pselect and
 * ppoll. hook path */
static void hb_syscall_rest(uint32_t hook, uint64_t made, long v[5], struct hb_timespec *left) {
  int at = -1;
  if (hook == HB_HOOK_poll) v[2] = hb_rest_ms(made, (int)v[2]);
  if (hook == HB_HOOK_epoll_wait || hook == HB_HOOK_epoll_pwait) v[3] = hb_rest_ms(made, (int)v[3]);
  if (hook == HB_HOOK_nanosleep) at = 0;
  if (hook == HB_HOOK_sigtimedwait || (hook == HB_HOOK_clock_nanosleep && !(v[1] & 1))) at = 2;
  if (hook == HB_HOOK_epoll_pwait2) at = 3;
  if (hook == HB_HOOK_io_getevents) at = 4;
  if (at >= 0) v[at] = (long)hb_rest_ts(made, (const void *)v[at], left);
}

static HB_NOINLINE long hb_syscall_sleeps(long n, long a, long b, long c, long d, long e, long f) {
  HB_UNWIND_SCOPE;
  uint32_t hook = hb_sleeper(n);
  struct hb_call call;
  hb_call_enter(&call, hook, 0, 1, HB_FRAME);
  long r = ((hb_syscall_fn)hb_real.syscall)(n, a, b, c, d, e, f);
  while (HB_UNLIKELY(r == -1) && call.slot && hb_ended(hook, call.began, HB_FRAME)) {
    struct hb_timespec left;
    long v[5] = {a, b, c, d, e};
    hb_syscall_rest(hook, call.stamp, v, &left);
    r = ((hb_syscall_fn)hb_real.syscall)(n, v[0], v[1], v[2], v[3], v[4], f);
  }
  hb_call_leave(&call, hook, 0, r, HB_ERRNO, HB_FRAME);
  return r;
}

/* Everything goes on by a jump: syscall(SYS_vfork) and the like must not find a frame of ours. */
HB_EXPORT HB_GATE long syscall(long n, long a, long b, long c, long d, long e, long f) {
  if (HB_UNLIKELY(!HB_REAL(hb_syscall_fn, syscall))) return hb_fail(HB_ENOSYS);
  if (HB_UNLIKELY(n == HB_SYS_seccomp) && a <= 1 /* SECCOMP_SET_MODE_STRICT, SECCOMP_SET_MODE_FILTER */) hb_confined();
  if (HB_UNLIKELY(n == HB_SYS_prctl)) hb_before_prctl(a, b);
  if (n == HB_SYS_futex) {
    uint32_t op = 1u << (b & 31); /* commands end at 13; the flags above them are 128 and 256 */
    if (op & HB_FUTEX_SLEEPS) return hb_futex_wait(n, a, b, c, d, e, f);
    if (op & HB_FUTEX_WAKES) return hb_futex_wake(n, a, b, c, d, e, f);
  } else if (hb_sleeper(n) && hb_load_relaxed(&hb.on) && (n != HB_SYS_io_uring_enter || c > 0)) { /* c: completions waited for */
    return hb_syscall_sleeps(n, a, b, c, d, e, f);
  } else if (HB_UNLIKELY(n == HB_SYS_rt_sigaction) && (b ? hb_keeps_signal((int)a, hb_is_handler(*(void *const *)b)) : hb_own_signal((int)a)) && d == 8) {
    return hb_own_syscall((const struct hb_sigaction *)b, (struct hb_sigaction *)c);
  } else if (HB_UNLIKELY(n == HB_SYS_sigaltstack) && HB_REAL(void *, sigaltstack)) {
    return hb_change_stack((int (*)(const void *, void *))hb_real.sigaltstack, (const struct hb_stack_t *)a, (void *)b);
  } else if (HB_UNLIKELY(n == HB_SYS_execve || n == HB_SYS_execveat)) {
    return hb_exec_syscall(n, a, b, c, d, e, f);
  }
  return ((hb_syscall_fn)hb_real.syscall)(n, a, b, c, d, e, f);
}

#endif
