/* hold.h: where the locks that a thread holds were taken.
 *
 * Nobody knows when a lock is taken whether somebody will wait for it. But a lock that was waited for will be again, so
 * its bucket becomes *hot* at the first recorded wait (HB_HOT beside the count of waiters, seen by the look that lock
 * and unlock take anyway), and from then on every acquisition leaves its stack in the thread's own memory. The
 * unlock that finds a waiter writes it into the release's record, as a difference to the release's own stack; every
 * other unlock forgets it. The stack is taken before the lock is, so that nobody is held up by it.
 *
 * An entry is trusted only if its bucket has been hot ever since (struct hb_hotness): then this thread's every unlock of the lock
 * went through here, and the entry is of the latest acquisition. A bucket cools HB_HOT_TICKS after the last
 * recorded wait. A thread notes HB_HOLD_PER_TICK acquisitions in each tick. Then its hot locks are as cheap as others until the
 * tick moves: what it takes goes without a stack.
 *
 * Not covered: whoever had the lock before it became hot; more than HB_HELD hot locks held at once. */
#ifndef HB_HOLD_H
#define HB_HOLD_H

#include "hooks/wait.h"

#define HB_HOT_TICKS 10000   /* 10 s */
#define HB_HOLD_PER_TICK 256 /* some 9 us of each ms */

/* Is taking this lock to be noted? With an entry in use (holding) even a spent thread looks: it may be this lock's, stale.
 * hook path */
HB_INLINE int hb_is_hot(uint64_t object) {
  if (HB_LIKELY(!(hb_watched(object) & HB_HOT))) return 0;
  const struct hb_tls *t = hb_self();
  return t->holding || t->hold_spent != (uint32_t)hb_load_relaxed(&hb.header->tick);
}

/* Has an unlock anything to do: a thread waits, or this thread may have noted where it took it? hook path */
HB_INLINE int hb_unlock_watched(uint64_t object) {
  uint32_t watched = hb_watched(object);
  return HB_UNLIKELY(watched) && (watched != HB_HOT || hb_self()->holding);
}

/* Somebody waited for this lock for long enough to be recorded. hook path */
static void hb_make_hot(uint64_t object) {
  uint32_t i = hb_bucket(object);
  uint64_t tick = hb_load_relaxed(&hb.header->tick);
  if (hb_load_relaxed(&hb.wiped->hot[i].tick) != tick) hb_store_relaxed(&hb.wiped->hot[i].tick, tick);
  if (hb_load_relaxed(&hb.wiped->waiters[i]) & HB_HOT) return;
  hb_store_relaxed(&hb.wiped->hot[i].since, hb_stamp());
  atomic_fetch_or_explicit(&hb.wiped->waiters[i], HB_HOT, memory_order_release);
}

/* Nobody has waited for long: stop looking. hook path */
static int hb_cooled(uint64_t object) {
  uint32_t i = hb_bucket(object);
  if (hb_load_relaxed(&hb.header->tick) - hb_load_relaxed(&hb.wiped->hot[i].tick) < HB_HOT_TICKS) return 0;
  atomic_fetch_and_explicit(&hb.wiped->waiters[i], ~HB_HOT, memory_order_relaxed);
  return 1;
}

HB_INLINE struct hb_holds *hb_holds_of(const struct hb_tls *t) { return t->flags & HB_TLS_FRESH ? NULL : t->local->holds; }

/* The thread takes its first hot lock. NULL: it is in the agent's own section, or has no room. hook path */
static HB_NOINLINE struct hb_holds *hb_holds_make(struct hb_tls *t, const void *frame) {
  struct hb_local *l = t->local;
  if (t->flags & HB_TLS_ALONE || !hb_begin(t)) return NULL;
  if (t->flags & HB_TLS_FRESH) hb_local_touch(t, l);
  struct hb_holds *h = &l->held;
  volatile uint64_t *pages[] = {&h->e[0].object, &h->last.generation, &h->last.read[0].at}; /* as there */
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) *pages[i] = 0;
  l->holds = h;
  hb_end(t, 0, frame);
  return h;
}

/* An entry is used no more. hook path */
HB_INLINE void hb_hold_drop(struct hb_tls *t, struct hb_hold *e) {
  e->object = 0;
  t->holding = (uint16_t)(t->holding & ~(1u << (e - t->local->held.e)));
}

/* The thread's entry for a lock that it holds; NULL: it was not seen to take it. hook path */
static HB_GATE struct hb_hold *hb_hold_of(struct hb_tls *t, uint64_t object) {
  struct hb_holds *h = t->local ? hb_holds_of(t) : NULL;
  if (!h) return NULL;
  uint64_t since = hb_load_relaxed(&hb.wiped->hot[hb_bucket(object)].since);
  for (int i = 0; i < HB_HELD; i++)
    if (h->e[i].object == object) {
      if (h->e[i].acquired > since) return &h->e[i];
      hb_hold_drop(t, &h->e[i]);
    }
  return NULL;
}

/* About to take a hot lock: keep the stack. NULL: none is kept. hook path */
static HB_GATE HB_NOINLINE struct hb_hold *hb_hold_begin(struct hb_tls *t, uint32_t hook, uint64_t object, const void *frame) {
  if (!hb_thread_ready(t) || !(hb.features & HB_FEATURE_LOCK) || hb_cooled(object) || t->busy_sp) return NULL;
  struct hb_holds *h = hb_holds_of(t);
  if (!h && !(h = hb_holds_make(t, frame))) return NULL;
  uint64_t tick = hb_load_relaxed(&hb.header->tick);
  if (tick != h->tick) {
    uint32_t knob = hb_load_relaxed(&hb.header->knob_holds);
    h->tick = tick;
    h->credit = knob && knob < HB_HOLD_PER_TICK ? knob : HB_HOLD_PER_TICK;
  }
  struct hb_hold *e = NULL, *free_ = NULL;
  for (int i = 0; i < HB_HELD; i++) {
    struct hb_hold *x = &h->e[i];
    if (x->object == object) e = x;
    else if (x->object == 0 && (!free_ || x->version == h->version)) free_ = x; /* rather one that has this very stack already */
  }
  if (h->credit == 0) {
    if (e) hb_hold_drop(t, e); /* of an earlier acquisition */
    return NULL;
  }
  if (--h->credit == 0) t->hold_spent = (uint32_t)tick;
  if (!e) e = free_ ? free_ : &h->e[h->next++ % HB_HELD];
  if (!hb_begin(t)) return NULL;
  struct hb_stack_taken x;
  hb_stack_hook_in(t, frame, &x, &h->last);
  t->holding = (uint16_t)(t->holding | 1u << (e - h->e));
  e->object = object;
  e->acquired = 0; /* not yet */
  e->begun = hb_stamp();
  e->hook = hook;
  uint32_t depth = x.v.n + x.v.joined;
  if (HB_UNLIKELY(x.v.n || depth != h->last.depth || e->version != h->version)) {
    const struct hb_frame *f = hb_scratch(t->local);
    uint32_t n = x.v.n < HB_HOLD_FRAMES ? x.v.n : HB_HOLD_FRAMES, k = 0;
    for (; k < n; k++) e->pc[k] = f[k].pc;
    for (uint32_t j = x.v.joined; j && k < HB_HOLD_FRAMES; j--) e->pc[k++] = h->last.f[j - 1].pc;
    e->n = k;
    e->flags = x.w.flags | (k < depth ? HB_STACK_CUT : 0u);
    e->omitted = x.w.omitted;
    if (x.v.n || depth != h->last.depth) h->version++;
    e->version = h->version;
    if (HB_LIKELY(x.remember)) hb_memory_keep(&h->last, &x.u, &x.c, &t->local->scratch, &x.v);
    else h->last.depth = 0;
  }
  hb_end(t, 0, frame);
  return e;
}

/* The lock was taken, or not. No clock is read while it is held: it was taken when the wait for it ended, or at once.
 * hook path */
HB_INLINE void hb_hold_end(struct hb_hold *e, uint64_t object, int taken) {
  if (!e || e->object != object || e->acquired) return; /* a handler's lock took the place */
  struct hb_tls *t = hb_self();
  if (!taken) hb_hold_drop(t, e);
  else e->acquired = t->left_stamp > e->begun ? t->left_stamp : e->begun;
}

/* How long it has been held, ns; all time where that is not known. hook path */
HB_INLINE uint64_t hb_held_ns(const struct hb_hold *e) { return e ? hb_stamp_ns(e->acquired, hb_stamp()) : UINT64_MAX; }

#endif
