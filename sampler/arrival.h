/* arrival.h: how a signal met its thread, which decides on what its sample says of where the thread spends its time. */
#ifndef HB_ARRIVAL_H
#define HB_ARRIVAL_H

#include "sampler/flight.h"
#include "sampler/points.h"

/* CPU time from a thread's going on to its signal's handler there: 4 to 20 us, and up to 60 (once in a hundred times 100) after others had the CPU for long. */
#define HB_RESUMED_NS 20000
#define HB_RESUMED_COLD_NS 100000

/* How a signal met its thread. */
struct hb_arrival {
  uint32_t how;    /* HB_RECF_* */
  uint64_t cpu;    /* the thread's CPU time; 0: not read */
  uint64_t flight; /* ns since the sampler looked at the thread */
  int on_its_way;  /* the signal was, while the thread ran */
};

/* Of a thread that has used that much CPU time since the sampler looked at it, flight ns ago: it was not running then. signal-safe */
static int hb_stood(uint64_t used, uint64_t flight) {
  return (int64_t)used < HB_RESUMED_NS || (used < HB_RESUMED_COLD_NS && used + HB_RESUMED_NS < flight); /* who ran all along has used as much */
}

/* What is known of how the signal met its thread.
 *
 * One to another CPU is an interrupt some microseconds later, and meets its thread wherever that is then. But the kernel looks for signals
 * at the end of each system call as well, and so takes there what is still on its way: of functions that work for 100 us and read a
 * clock, one signal in ten names the clock. Only a thread that the sampler itself interrupted by waking up on its CPU is met at the end of system calls as
 * often as it is inside them. Preemption is put off to there, too, and by the same means. analysis/weigh makes of it what it can.
 *
 * A thread that waited for a CPU when it was looked at stands where it was preempted. How long the signal took does not tell who did: who was running
 * may be preempted while it is on its way, and is so more often while others run as well, at the beginnings of work that all of them were woken up for. To take
 * those out leaves such places with too little. What tells is CPU time: the kernel's count of who does not run is up to date, and such a thread has used next to nothing
 * since. If that goes on at once when the sampler rests, it was the sampler that took its CPU. signal-safe */
static void hb_arrived(const struct hb_thread *s, int after_syscall, struct hb_arrival *a) {
  uint64_t now = hb_now_ns(), asked = hb_load_relaxed(&s->asked_ns), rested = hb_load_relaxed(&hb.header->rested_ns);
  uint64_t looked_cpu = hb_load_relaxed(&s->looked_cpu_ns);
  uint32_t cpu = hb_load_relaxed(&s->asked_cpu);
  a->flight = (int64_t)(now - asked) > 0 ? now - asked : 0; /* by two CPUs' clocks */
  int prompt = a->flight <= HB_PROMPT_NS, stood = !prompt, interrupted = prompt && cpu && cpu == hb_cpu() + 1;
  a->cpu = 0;
  if (looked_cpu) {
    a->cpu = hb_thread_cpu_ns();
    stood = hb_stood(a->cpu - looked_cpu, a->flight);
    interrupted = stood && (prompt || (int64_t)(now - rested) <= HB_PROMPT_NS);
  }
  a->on_its_way = prompt && !interrupted;
  a->how = after_syscall ? HB_RECF_AFTER_SYSCALL : 0u;
  if (interrupted)
    a->how |= HB_RECF_SAME_CPU;
  else if (stood || (after_syscall && !prompt)) /* put off until there */
    a->how |= HB_RECF_STALE;
}

/* What a sample at the place that a signal met counts for: see flight.h. signal-safe */
static uint32_t hb_arrived_worth(const struct hb_tls *t, const struct hb_arrival *a) {
  if (a->how & HB_RECF_AFTER_SYSCALL) return 0;
  uint64_t lasted = t->cpu_bound == HB_POINT_MET ? UINT64_MAX /* left_stamp is when a sample of this run was taken */
                                                 : hb_stamp_ns(t->left_stamp, hb_stamp());
  return hb_flight_worth(lasted, a->flight, a->on_its_way);
}

#endif
