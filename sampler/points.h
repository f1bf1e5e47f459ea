/* points.h: where in its own CPU time a thread is to be sampled.
 *
 * A thread's CPU time is cut into strata of a period each (hb_cpu_period), and one sampling point lies at a random place in each, drawn
 * before anybody knows what the thread will be doing there. The thread itself notices that it has passed a point, at
 * the calls that can sleep: on leaving one, the point lies inside the call, and the call's stack is exactly where the time
 * went, in the kernel or not; on entering one, it lies in the run of work since the last call, of which signals that the
 * sampler sent at random moments of such runs tell more. So both carry where the run began, and the weight of
 * points noticed late is shared out over the signals that arrived in runs of the same origin (analysis/weigh). A point stands for one
 * stratum, wherever in it it lies: also a thread that lives for a fraction of one is sampled in proportion to its
 * time, by one in so many of its kind. What a thread's points weigh differs from its CPU time by less than a stratum.
 *
 * Noticing costs one comparison and no system call: CPU time never runs faster than the clock, so a point that is
 * `d` ns of CPU time away is not reached before `d` ns have gone by (cpu_bound). Only then is the thread's CPU clock
 * read, and the bound moved on. Since the bound was not passed at the hook before, a point that has been passed lies
 * between the two hooks: nothing is attributed to the wrong side of a call. A thread that sleeps most of the time reads
 * its clock about log2(period / time awake) times per point. */
#ifndef HB_POINTS_H
#define HB_POINTS_H

#include "agent/state.h"

#define HB_SHORT_RUN_NS 4000 /* less than the shortest flight of a signal to another CPU: 5 us in a virtual machine */
#define HB_PROMPT_NS 50000 /* a signal to a thread on a CPU takes 5 to 20 us in a virtual machine */
#define HB_POINT_MET 0 /* bound: pass by the next hook in any case, a signal has been taken in this run of work */
#define HB_POINT_NEVER (UINT64_MAX / 4) /* stamps from now */

/* hook path; one comparison */
HB_INLINE int hb_point_near(const struct hb_tls *t, uint64_t stamp) { return (int64_t)(stamp - t->cpu_bound) >= 0; }

/* Are this thread's samples taken by signal? Otherwise it takes them all itself, at hooks. */
HB_INLINE int hb_signalled(const struct hb_tls *t) {
  return t->rest == HB_RUNNING &&
         !(hb_load_relaxed(&hb.slot->flags) & (HB_PROCF_SYNC_ONLY | HB_PROCF_HANDLER_CHAINED | HB_PROCF_LOADING));
}

#define HB_PERIOD_MOST_NS 1000000000u

/* The period in force: a thread takes a new one when it draws its next point, so each point stands for the stratum that
 * it was drawn in (collector/budget.go). 0: no CPU profile. signal-safe */
HB_INLINE uint64_t hb_cpu_period(void) {
  uint64_t period = hb.cpu_period_ns, knob = hb_load_relaxed(&hb.header->knob_cpu_period_ns);
  if (HB_LIKELY(knob <= period) || !period) return period;
  return knob < HB_PERIOD_MOST_NS ? knob : HB_PERIOD_MOST_NS > period ? HB_PERIOD_MOST_NS : period;
}

static void hb_point_draw(struct hb_tls *t, uint64_t period) {
  uint64_t x = t->random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64, Marsaglia 2003 */
  t->random = x;
  t->cpu_next = t->cpu_stratum + (uint64_t)(((unsigned __int128)x * period) >> 64);
  t->cpu_stratum += period;
  t->cpu_length = (uint32_t)period;
}

static void hb_point_bound(struct hb_tls *t, uint64_t cpu, uint64_t stamp) {
  t->cpu_bound = stamp + (uint64_t)(((unsigned __int128)(t->cpu_next - cpu) * hb.stamps_mult) >> 20);
}

/* A thread's CPU time is sampled from `from` on, now being `cpu`. hook path */
static void hb_points_begin(struct hb_tls *t, uint64_t from, uint64_t cpu) {
  t->cpu_stratum = from;
  t->cpu_bound = hb_stamp() + HB_POINT_NEVER;
  if (!hb.cpu_period_ns) return;
  hb_point_draw(t, hb_cpu_period());
  hb_point_bound(t, cpu < t->cpu_next ? cpu : t->cpu_next, hb_stamp());
}

/* The thread has used `cpu` ns by now: passes the points up to there and returns their weight, ns; 0 when there were
 * none. signal-safe */
static uint64_t hb_points_pass(struct hb_tls *t, uint64_t cpu, uint64_t stamp) {
  uint64_t weight = 0, period = hb_cpu_period();
  if (!period) {
    t->cpu_bound = stamp + HB_POINT_NEVER;
    return 0;
  }
  if (cpu > t->cpu_stratum + 1024 * period) { /* strata of a long call, all alike: each has its point */
    weight = ((cpu - t->cpu_stratum) / period - 1) * period;
    t->cpu_stratum += weight;
  }
  for (; t->cpu_next <= cpu; hb_point_draw(t, period)) weight += t->cpu_length;
  hb_point_bound(t, cpu, stamp);
  return weight;
}

#endif
