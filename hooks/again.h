/* again.h: calls that a signal ended which the target ignores. Without us the kernel would not have delivered it; our
 * handler's being there ends what is never restarted (signal(7): polls, sleeps, waits for signals, System V's). Such a
 * call is made again, for the time that is left. It happens once in a process (sampler/action.h), and to a thread that
 * has lent the signal.
 *
 * Not covered: calls by number, socket time-outs (SO_RCVTIMEO), aio_suspend, io_getevents; a signal of the target's
 * own that ends the same call within the same microseconds. */
#ifndef HB_AGAIN_H
#define HB_AGAIN_H

#include "hooks/wait.h"

/* Was the call that began then ended so? Once for each signal. hook path */
HB_INLINE int hb_ended(uint64_t began) {
  struct hb_tls *t = hb_self();
  if (HB_LIKELY(!t->ended)) return 0;
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
