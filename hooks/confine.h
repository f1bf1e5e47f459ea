/* confine.h: a program that takes from itself what we use: system calls (seccomp) or the cycle counter (PR_SET_TSC).
 *
 * A filter that kills must not meet a call of ours, on any thread: SECCOMP_FILTER_FLAG_TSYNC confines them all at
 * once, while others stand in our handler or on their way into it. So before the program's call is made, nobody
 * signals the process any more, the signals that are on their way have arrived, every call of ours is over, and none
 * begins (hb_calls_begin). Waiting for that takes microseconds; it ends after HB_CONFINE_LIMIT_NS in any case.
 *
 * Not seen: filters that are installed without libc's functions. */
#ifndef HB_CONFINE_H
#define HB_CONFINE_H

#include "hooks/exec.h"
#include "sampler/handler.h"

#define HB_CONFINE_LIMIT_NS 1000000000u

enum { HB_PR_SET_SECCOMP = 22, HB_PR_GET_TSC = 25, HB_PR_SET_TSC = 26, HB_PR_TSC_SIGSEGV = 2 };

/* hook path; under hb_calls_begin, or before others may be waited for */
static int hb_wait_on(uint64_t since) {
  if (hb_now_ns() - since > HB_CONFINE_LIMIT_NS) return 0;
  hb_raw6(HB_SYS_sched_yield, 0, 0, 0, 0, 0, 0);
  return 1;
}

/* From here on the process is neither recorded nor signalled. hook path */
static HB_NOINLINE void hb_recording_ends(uint32_t why) {
  struct hb_tls *t = hb_self();
  if (!hb_thread_ready(t)) return;
  hb_store_relaxed(&hb.slot->disabled, why);
  atomic_fetch_or_explicit(&hb.slot->flags, HB_PROCF_SYNC_ONLY, memory_order_relaxed);
  hb_signals_drain(t, HB_CONFINE_LIMIT_NS); /* for good */
  hb_store_relaxed(&hb.on, 0u);
  t->flags |= HB_TLS_DEAD; /* no more stamps on this thread: strict mode takes the cycle counter away, too */
  t->slot = NULL;
  t->local = NULL;
}

/* The target is about to confine its system calls. hook path */
static HB_NOINLINE void hb_confined(void) {
  if (hb.confined) return;
  hb.confined = 1;
  hb_environ_cut();
  uint64_t since = hb_now_ns();
  hb_recording_ends(HB_OFF_SECCOMP);
  atomic_store_explicit(&hb_calls_shut, 1u, memory_order_seq_cst);
  while (atomic_load_explicit(&hb_calls_made, memory_order_seq_cst) && hb_wait_on(since)) {}
}

/* Before prctl(2), by whatever name it is called. hook path */
static void hb_before_prctl(long op, long a) {
  if (HB_UNLIKELY(op == HB_PR_SET_SECCOMP)) hb_confined();
  if (HB_UNLIKELY(op == HB_PR_SET_TSC && a == HB_PR_TSC_SIGSEGV) && !hb_counter_off) hb_recording_ends(HB_OFF_NO_COUNTER);
}

/* May the cycle counter be read? Its loss is inherited, and the vDSO's clock reads it, too. init only */
static void hb_counter_check(void) {
  int mode = 0;
  if (!hb_is_err(hb_sys2(HB_SYS_prctl, HB_PR_GET_TSC, &mode)) && mode == HB_PR_TSC_SIGSEGV) hb_counter_off = 1;
}

#endif
