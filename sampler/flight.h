/* flight.h: what a sample at the beginning of a run of work counts for.
 *
 * A run begins when a call that can sleep returns. No signal is sent during the call, and one from another CPU is an interrupt 10 to 40 us
 * later: it meets places that lie at least as far behind the beginning as it was on its way. So the beginnings of runs are met by
 * few signals, and a function that is called there, for 100 us, has a tenth too little. A sample at such a place counts for as many as there
 * would have been: the inverse of how likely a signal is to reach the place (Horvitz and Thompson 1952), by how long those were on their way
 * that met places which all of them reach. Signals that did not have the thread running on their way meet any place: those of a thread that was preempted, or
 * that the sampler interrupted by waking up on its CPU. */
#ifndef HB_FLIGHT_H
#define HB_FLIGHT_H

#include "agent/state.h"

#define HB_FLIGHT_NS 2048u /* by which times are told apart */
#define HB_REACHED_NS (2u * HB_FLIGHTS * HB_FLIGHT_NS) /* places that lie so far behind the beginning all signals reach */
#define HB_FLIGHTS_KNOWN 64u /* fewer signals say little */
#define HB_WORTH_ONE 256u
#define HB_WORTH_MOST 8u

/* What the sample of a signal counts for, in 256ths, or 0: as one. The run had lasted that many ns by the clock when the handler ran, and the signal
 * took `took` of them. on_its_way: while the thread ran. signal-safe */
static uint32_t hb_flight_worth(uint64_t lasted, uint64_t took, int on_its_way) {
  uint64_t place = on_its_way ? lasted : lasted > took ? lasted - took : 0, slot = took / HB_FLIGHT_NS;
  if (place >= HB_REACHED_NS) {
    hb_add_relaxed(on_its_way ? &hb.flights[slot < HB_FLIGHTS ? slot : HB_FLIGHTS - 1] : &hb.flights_none, 1u);
    return 0;
  }
  uint64_t all = 2ull * hb_load_relaxed(&hb.flights_none), reach = all;
  for (uint32_t i = 0; i < HB_FLIGHTS; i++) {
    uint64_t n = hb_load_relaxed(&hb.flights[i]);
    all += 2 * n;
    reach += i < place / HB_FLIGHT_NS ? 2 * n : i == place / HB_FLIGHT_NS ? n : 0; /* half of those that took as long */
  }
  if (all < 2 * HB_FLIGHTS_KNOWN) return 0;
  uint64_t worth = reach * HB_WORTH_MOST > all ? all * HB_WORTH_ONE / reach : HB_WORTH_MOST * HB_WORTH_ONE;
  return worth > HB_WORTH_ONE ? (uint32_t)worth : 0;
}

#endif
