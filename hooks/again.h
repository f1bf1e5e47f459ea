/* again.h: calls that a signal ended which the target ignores. Without us the kernel would not have delivered it; our
 * handler's being there ends what is never restarted (signal(7): polls, sleeps, waits for signals, System V's). Such a
 * call is made again, for the time that is left. It happens once in a process (sampler/action.h), and to a thread that
 * has lent the signal.
 *
 * A signal sent to the process may wake one thread and be taken by another one that runs. Calls that are made again by the
 * kernel itself go on then; those below (hb_never_restarted) end with EINTR in the thread that was woken, in which nothing
 * ran. So after such an end the thread's stack is searched for what a handler leaves there. Without a trace of one, the call
 * is made again if the process has taken an ignored signal since it began.
 *
 * Not covered: a signal of the target's own that ends the same call within the same microseconds; calls with a socket's
 * time-out that another thread's taking of the signal ended. */
#ifndef HB_AGAIN_H
#define HB_AGAIN_H

#include "hooks/wait.h"

/* Ends with EINTR although no handler ran: signal(7), "Interruption of system calls and library functions by stop
 * signals", which has them all. Known where it is compiled. */
HB_INLINE int hb_never_restarted(uint32_t hook) {
  return hook == HB_HOOK_epoll_wait || hook == HB_HOOK_epoll_pwait || hook == HB_HOOK_epoll_pwait2 || hook == HB_HOOK_semop ||
         hook == HB_HOOK_semtimedop || hook == HB_HOOK_sigtimedwait || hook == HB_HOOK_sigwaitinfo;
}

#define HB_CALL_DEPTH 1024 /* bytes between a wrapper's frame and the system call of the real function: glibc's and musl's need 200 */

/* Of [lo, hi) the upper part that can be read begins where? hook path */
static uintptr_t hb_readable_from(uintptr_t lo, uintptr_t hi) {
  uintptr_t from = (hi - 1) & ~(uintptr_t)4095;
  if (!hb_readable8(from)) return hi;
  while (from > lo && hb_readable8(from - 4096)) from -= 4096;
  return from > lo ? from : lo;
}

/* In the `room` bytes at the upper end of [lo, hi), is there a ucontext of a call that was ended, made by the wrapper with
 * this frame? It is spoilt, so that it is not taken for a later one's. hook path */
static int hb_ended_trace(uintptr_t lo, uintptr_t hi, uint64_t room, uintptr_t frame) {
  lo = hb_readable_from(hi - lo > room ? hi - room : lo, hi);
  for (uintptr_t at = (hi - HB_UCONTEXT_BYTES) & ~(uintptr_t)15; at >= lo && at < hi; at -= 16) {
    uint64_t *sp = hb_ucontext_sp((void *)at);
    if (frame - *sp >= HB_CALL_DEPTH || !hb_ucontext_interrupted((void *)at)) continue;
    *sp = 0;
    return 1;
  }
  return 0;
}

/* Has a handler run on this thread since the wrapper with this frame called, and ended the call? 1 if that cannot be told.
 * hook path */
static int hb_ended_by_handler(const struct hb_tls *t, uintptr_t frame) {
  if (frame < t->stack_lo || frame >= t->stack_hi) return 1;
  if (hb_ended_trace(t->stack_lo, frame, HB_CALL_DEPTH + hb.signal_stack, frame)) return 1;
  struct hb_range alternate = hb_stack_alternate();
  return alternate.hi && hb_ended_trace(alternate.lo, alternate.hi, hb.signal_stack, frame);
}

#define HB_TAKEN_NS 64000000u /* how long another thread may need from taking a signal to its handler */

/* EINTR, and no signal came to this thread: has another one taken what woke it? hook path; keeps errno */
static HB_NOINLINE int hb_ended_elsewhere(struct hb_tls *t, uint64_t began, const void *frame) {
  if (hb_result(-1) != -HB_EINTR || hb_handles(hb_app_action()) || hb_ended_by_handler(t, (uintptr_t)frame)) return 0;
  if (hb_load_relaxed(&hb.given_up)) return (int64_t)(hb_load_relaxed(&hb.ignored_at) - began) > 0;
  /* It may be on its way to its handler. A stopped program that goes on comes here as well: it waits 0.13 s in all. */
  uint64_t since = hb_now_ns(), limit = HB_TAKEN_NS >> hb_load_relaxed(&hb.ends_unexplained);
  while (!hb_load_acquire(&hb.ignored_at) && hb_now_ns() - since < limit) hb_sys1(HB_SYS_sched_yield, 0);
  if (hb_load_acquire(&hb.ignored_at)) return 1;
  if (hb_load_relaxed(&hb.ends_unexplained) < 20) hb_add_relaxed(&hb.ends_unexplained, 1u);
  return 0;
}

/* Did an ignored signal end the call that began then? Once for each signal. hook path */
HB_INLINE int hb_ended(uint32_t hook, uint64_t began, const void *frame) {
  struct hb_tls *t = hb_self();
  if (HB_LIKELY(!t->ended)) return hb_never_restarted(hook) && hb_ended_elsewhere(t, began, frame);
  int is = t->ended == hb_ended_mark(began);
  t->ended = 0;
  return is;
}

/* What is left of a time that was given at a stamp. hook path */
static const void *hb_rest_ts(uint64_t from, const void *given, struct hb_timespec *rest) {
  const struct hb_timespec *g = given;
  if (!g) return NULL;
  int64_t gone = (int64_t)hb_stamp_ns(from, hb_stamp());
  rest->sec = g->sec - gone / 1000000000;
  rest->nsec = g->nsec - gone % 1000000000;
  if (rest->nsec < 0) rest->nsec += 1000000000, rest->sec--;
  if (rest->sec < 0) rest->sec = rest->nsec = 0;
  return rest;
}
static int hb_rest_ms(uint64_t from, int ms) {
  int64_t left = ms - (int64_t)(hb_stamp_ns(from, hb_stamp()) / 1000000);
  return ms < 0 ? ms : left < 0 ? 0 : (int)left;
}
static unsigned hb_rest_us(uint64_t from, unsigned us) {
  int64_t left = us - (int64_t)(hb_stamp_ns(from, hb_stamp()) / 1000);
  return left < 0 ? 0 : (unsigned)left;
}

/* sleep(3) gives back whole seconds: the rest is slept by another function. hook path */
static unsigned hb_rest_sleep(uint64_t from, unsigned s) {
  int (*sleeps)(const void *, void *) = (int (*)(const void *, void *))hb_real.nanosleep;
  struct hb_timespec all = {s, 0}, rest;
  hb_rest_ts(from, &all, &rest);
  if (!sleeps || sleeps(&rest, &rest) == 0) return 0;
  return (unsigned)rest.sec + (rest.nsec >= 500000000);
}

#endif
