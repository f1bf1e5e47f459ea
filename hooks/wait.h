/* wait.h: what locks, conditions, semaphores and futexes share: a wait that is published while it lasts, and the
 * baton by which whoever lets go tells the waiter who it was.
 *
 * A waiter counts itself in waiters[bucket] before it waits. Whoever lets go looks at that count (and at the lock
 * word) *before* it releases: when nobody waits that look is all it does. Otherwise it leaves a baton in the bucket
 * {object, time, thread} and goes on; a waiter that comes out takes the baton if it names its object and is not
 * older than its wait. Looking before and not after the release is what keeps missed hand-overs below 0.01 %.
 *
 * Releases are recorded by the delay that they caused: `debt` adds up the time that others have waited since
 * the last recorded release, and a record with the releaser's stack is written when it passes release_debt_ns. So a
 * lock held long is never missed and a million cheap hand-overs cost next to nothing.
 *
 * A thread that waits tens of thousands of times a second earns its records: HB_WAIT_BURST at once and
 * HB_WAIT_PER_TICK for each tick. When they are spent its threshold doubles, up to HB_WAIT_ALWAYS_NS, from which on every
 * wait is recorded; what is left out is in the exact counters (waits, wait_ns). Releases, which are weighted by
 * delay, become rarer without such an end. */
#ifndef HB_WAIT_H
#define HB_WAIT_H

#include "agent/real.h"
#include "sampler/handler.h"

HB_INLINE uint32_t hb_bucket(uint64_t object) { return (uint32_t)((object * 0x9e3779b97f4a7c15ull) >> 52); }
_Static_assert(HB_LOCK_BUCKETS == 1 << 12, "hb_bucket shifts by 52");

/* Waiters, and HB_HOT: 0 when a lock or an unlock has nothing to look at. */
HB_INLINE uint32_t hb_watched(uint64_t object) { return hb_load_relaxed(&hb.wiped->waiters[hb_bucket(object)]); }
HB_INLINE uint32_t hb_waiters(uint64_t object) { return hb_watched(object) & ~HB_HOT; }

/* ---- the waiting side ---- */

struct hb_wait {
  struct hb_thread *slot; /* NULL: not recorded, the rest is unset */
  struct hb_block block;
  uint64_t began; /* stamp: to the program all that follows is part of the call, the sample at its entry as well */
  uint64_t start_ns;
  uint32_t bucket, owner;
};

/* Is a sample at the entry of a parking call due? hook path */
HB_INLINE int hb_enter_due(const struct hb_tls *t) { return hb_load_relaxed(&hb.header->tick) != t->enter_tick; }

/* Sample at the entry of a parking call, once per tick. hook path */
HB_INLINE void hb_enter_gate(struct hb_tls *t, uint32_t hook, uint64_t object, const void *frame) {
  if (HB_LIKELY(!hb_enter_due(t))) return;
  t->enter_tick = hb_load_relaxed(&hb.header->tick);
  hb_sample_hook(t, HB_SAMPLE_ENTER, hook, object, frame);
}

HB_INLINE void hb_publish_in(struct hb_thread *s, uint32_t hook, uint64_t object, uint32_t owner, const void *frame) {
  hb_store_relaxed(&s->in_object, object);
  hb_store_relaxed(&s->in_owner_tid, owner);
  hb_store_relaxed(&s->in_tick, hb_load_relaxed(&hb.header->tick));
  hb_store_relaxed(&s->in_pc, ((const uint64_t *)frame)[1]);
  hb_store_release(&s->in_hook, hook);
}

/* hook path; `owner` is the lock's owner tid as far as its memory tells */
static void hb_wait_begin(struct hb_wait *w, uint32_t hook, uint64_t object, uint32_t owner, const void *frame) {
  struct hb_tls *t = hb_self();
  w->slot = NULL;
  if (!hb_thread_ready(t)) return;
  struct hb_thread *s = w->slot = t->slot;
  w->began = hb_stamp();
  hb_saw_depth(t, (const void *)hb_frame_cfa(frame));
  int due = hb_enter_due(t);
  hb_enter_gate(t, hook, object, frame);
  w->owner = owner;
  w->bucket = hb_bucket(object);
  w->start_ns = hb_now_ns();
  hb_block_enter(t, s, &w->block, frame);
  if (HB_LIKELY(!w->block.passive)) { /* otherwise a handler's, during a call that is published */
    hb_publish_in(s, hook, object, owner, frame);
    if (atomic_fetch_add_explicit(&hb.wiped->waiters[w->bucket], 1u, memory_order_seq_cst) << 1 == 0) {
      hb_store_relaxed(&hb.wiped->locks[w->bucket].since_ns, w->start_ns);
      hb_store_relaxed(&hb.wiped->woken[w->bucket], 0u);
    }
    t->waiting = w->bucket + 1;
    t->outer_stamp = w->began;
  }
  uint64_t stamp = hb_stamp();
  if (!due) hb_own_timed(s, w->began, stamp - w->block.waited, 1);
  if (HB_UNLIKELY(hb_point_near(t, stamp))) hb_sample_point(t, hook, 0, frame);
}

/* The baton for `object`, if it was left since `since_ns`. 0: none or torn. hook path */
static uint32_t hb_baton_take(uint64_t object, uint64_t since_ns, uint64_t *release_ns) {
  struct hb_lock_bucket *b = &hb.wiped->locks[hb_bucket(object)];
  uint64_t o = hb_load_acquire(&b->object), ns = hb_load_relaxed(&b->release_ns), who = hb_load_relaxed(&b->releaser);
  if (o != object || hb_load_relaxed(&b->check) != (o ^ ns ^ who) || ns < since_ns) return 0;
  *release_ns = ns;
  return (uint32_t)who;
}

#define HB_WAIT_PER_TICK 2

/* A wait or a release is about to be recorded: adapt the thresholds. hook path */
static HB_NOINLINE void hb_wait_adapt(struct hb_tls *t) {
  uint32_t tick = (uint32_t)hb_load_relaxed(&hb.header->tick), gone = tick - t->wait_tick;
  uint64_t credit = t->wait_credit + (uint64_t)(gone < HB_WAIT_BURST ? gone : HB_WAIT_BURST) * HB_WAIT_PER_TICK;
  uint64_t least = hb.lock_threshold_ns, most = least > HB_WAIT_ALWAYS_NS || !least ? least : HB_WAIT_ALWAYS_NS;
  t->wait_tick = tick;
  if (credit > HB_WAIT_BURST) credit = HB_WAIT_BURST;
  if (credit) credit--;
  if (credit == 0) {
    uint64_t twice = 2ull * t->wait_threshold_ns;
    t->wait_threshold_ns = (uint32_t)(twice < most ? twice : most);
    if (t->debt_shift < 10 && hb.release_debt_ns > 1) t->debt_shift++;
    credit = HB_WAIT_BURST / 4;
  } else if (credit > HB_WAIT_BURST / 2 && (t->wait_threshold_ns > least || t->debt_shift)) {
    uint64_t half = t->wait_threshold_ns / 2;
    t->wait_threshold_ns = (uint32_t)(half > least ? half : least);
    if (t->debt_shift) t->debt_shift--;
    credit = HB_WAIT_BURST / 4;
  }
  t->wait_credit = (uint16_t)credit;
}

/* hook path; keeps errno. result: the call's value or -errno. Returns whether the wait was recorded. */
static int hb_wait_end(struct hb_wait *w, uint32_t hook, uint64_t object, uint64_t object2, int64_t result,
                        uint32_t flags, const void *frame) {
  struct hb_tls *t = hb_self();
  struct hb_thread *s = w->slot;
  if (!s || t->slot != s) return 0; /* not recorded, or a fork child came back from its parent's call */
  uint64_t stamp = hb_stamp(), ns = hb_stamp_ns(w->began, stamp);
  t->left_pc = ((const uint64_t *)frame)[1];
  t->left_stamp = stamp;
  if (HB_UNLIKELY(hb_point_near(t, stamp))) hb_sample_inside(t, hook, frame);
  hb_block_leave(t, s, &w->block);
  if (HB_LIKELY(!w->block.passive)) {
    hb_store_relaxed(&s->in_hook, 0u);
    hb_waiting_end(t);
  }
  uint64_t waits = hb_load_relaxed(&s->waits);
  hb_store_relaxed(&s->waits, waits + 1);
  hb_store_relaxed(&s->wait_ns, hb_load_relaxed(&s->wait_ns) + ns);
  if (HB_UNLIKELY(hb_own_passage(waits))) hb_own_timed(s, t->left_stamp, hb_stamp(), HB_OWN_PASSAGES);
  if (ns < t->wait_threshold_ns || !(hb.features & HB_FEATURE_LOCK)) return 0;
  if (HB_UNLIKELY(ns < hb_load_relaxed(&hb.header->knob_wait_ns)) && ns < HB_WAIT_LONG_NS) return 0;
  hb_wait_adapt(t);
  struct hb_interval i = {hook, flags, w->owner, 0, object, object2, 0, w->began, result};
  if (!(flags & HB_RECF_TIMEDOUT)) i.releaser = hb_baton_take(object, w->start_ns, &i.release_ns);
  hb_emit_interval(t, &i, frame);
  return 1;
}

/* ---- the releasing side ---- */

static void hb_baton_leave(struct hb_lock_bucket *b, uint64_t object, uint64_t now, uint64_t uid) {
  hb_store_relaxed(&b->check, (uint64_t)0); /* no reader verifies a half-written one */
  hb_store_release(&b->release_ns, now);
  hb_store_relaxed(&b->releaser, uid);
  hb_store_relaxed(&b->object, object);
  hb_store_release(&b->check, object ^ now ^ uid);
}

/* About to let go of something that somebody may wait for: leaves the baton. Returns the debt to record after the
 * release, 0 for none. It was held for held_ns: nobody was delayed by this thread
 * before. hook path */
static HB_GATE uint64_t hb_release_begin(struct hb_tls *t, uint64_t object, uint64_t held_ns, uint64_t *now_out) {
  if (!hb_thread_ready(t)) return 0;
  uint32_t i = hb_bucket(object);
  struct hb_lock_bucket *b = &hb.wiped->locks[i];
  uint64_t now = hb_now_ns(), debt = 0;
  if (hb_load_relaxed(&hb.wiped->waiters[i]) & ~HB_HOT) {
    uint64_t since = hb_load_relaxed(&b->since_ns), prev = hb_load_relaxed(&b->release_ns);
    if (hb_load_relaxed(&b->object) == object && prev > since) since = prev; /* earlier delay is paid for */
    if (held_ns < now && now - held_ns > since) since = now - held_ns;
    debt = hb_load_relaxed(&b->debt_ns) + (now > since ? now - since : 0);
    if (debt >= hb.release_debt_ns << t->debt_shift) {
      hb_store_relaxed(&b->debt_ns, (uint64_t)0);
      hb_wait_adapt(t);
    } else {
      hb_store_relaxed(&b->debt_ns, debt);
      debt = 0;
    }
  }
  hb_baton_leave(b, object, now, t->uid);
  *now_out = now;
  return debt;
}

/* errno as libc has it; for calls that return -1. hook path */
static int64_t hb_result(int64_t r) {
  if (r != -1 || !hb_real.errno_location) return r;
  return -(int64_t) * ((int *(*)(void))hb_real.errno_location)();
}

/* hook path */
static uint32_t hb_result_flags(int64_t r) {
  if (r == -HB_EINTR) return HB_RECF_INTERRUPTED;
  if (r == -HB_ETIMEDOUT || r == -HB_EAGAIN) return HB_RECF_TIMEDOUT;
  return r < 0 ? HB_RECF_FAILED : 0;
}

#endif
