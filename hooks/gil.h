/* gil.h: the GIL of CPython as one lock. To the C library it is a mutex, two conditions and a word that says whether
 * it is taken (Python/ceval_gil.c); the conditions are known by their addresses (struct hb_python):
 *
 *   a timed wait for `cond`      somebody wants the GIL; every 5 ms the wait begins again, and it is one
 *   a signal of `switch_cond`    the caller has taken the GIL
 *   a signal of `cond`           the caller has dropped it
 *
 * A thread that was asked to drop it also waits for `switch_cond`, until another has taken it. It may not want the GIL any more by
 * then, so that is a wait for a condition like any other.
 *
 * All three happen under the GIL's mutex, and whoever works there holds up everybody: those hooks only note
 * what happened. The records are written when the mutex has been let go. What they note lies in hb_wiped.gil, which
 * the mutex protects. A thread's wait lasts from its first wait for `cond` until it has taken the GIL. */
#ifndef HB_GIL_H
#define HB_GIL_H

#include "hooks/lock.h"

/* Is it this part of the GIL? Addresses are 0 until the first stack of Python. */
HB_INLINE int hb_is_gil(const _Atomic uint64_t *part, const void *object) {
  return (uint64_t)object == hb_load_relaxed(part);
}

/* The thread's notes; NULL: it is not recorded, or has no room for any. hook path */
static struct hb_py_gil *hb_gil_notes(struct hb_tls *t) {
  if (!hb_thread_ready(t) || !t->local || t->flags & HB_TLS_ALONE || !(hb.features & HB_FEATURE_LOCK)) return NULL;
  return &t->local->python.gil;
}

/* The thread begins to want the GIL. hook path, under the GIL's mutex */
static void hb_gil_wants(struct hb_py_gil *g) {
  if (g->began) return;
  struct hb_gil_state *s = &hb.wiped->gil;
  g->began = hb_stamp();
  g->owner = hb_load_relaxed(&s->holder_tid);
  if (hb_add_relaxed(&s->waiting, 1u) == 0) hb_store_relaxed(&s->since_ns, hb_now_ns());
}

struct hb_gil_wait {
  struct hb_block block;
  struct hb_thread *slot;
};

/* A wait for one of its conditions begins and ends, as far as signals and others are concerned. hook path */
static void hb_gil_wait_begin(struct hb_gil_wait *w, struct hb_tls *t, struct hb_py_gil *g, const void *frame) {
  w->slot = t->slot;
  hb_block_enter(t, w->slot, &w->block, frame);
  if (w->block.passive) return;
  hb_publish_in(w->slot, HB_HOOK_GIL, hb_load_relaxed(&hb.gil.at), g->owner, frame);
  t->outer_stamp = g->began;
}

static void hb_gil_wait_end(struct hb_gil_wait *w, struct hb_tls *t, const void *frame) {
  if (t->slot != w->slot) return;
  t->left_pc = ((const uint64_t *)frame)[1];
  t->left_stamp = hb_stamp();
  hb_block_leave(t, w->slot, &w->block);
  if (!w->block.passive) hb_store_relaxed(&w->slot->in_hook, 0u);
}

/* Notes that the GIL was taken (signal of switch_cond) or dropped (of cond). hook path, under the GIL's mutex */
static void hb_gil_noted(int taken) {
  struct hb_tls *t = hb_self();
  struct hb_py_gil *g = hb_gil_notes(t);
  struct hb_gil_state *s = &hb.wiped->gil;
  if (!g) return;
  uint64_t now = hb_now_ns();
  if (taken) {
    hb_store_relaxed(&s->holder, t->uid);
    hb_store_relaxed(&s->holder_tid, t->tid);
    hb_store_relaxed(&s->taken_ns, now);
    if (!g->began) return;
    hb_sub_relaxed(&s->waiting, 1u);
    g->pending = HB_GIL_TOOK;
    g->releaser = hb_load_relaxed(&s->dropper);
    g->release_ns = hb_load_relaxed(&s->dropped_ns);
    return;
  }
  int mine = hb_load_relaxed(&s->holder) == t->uid;
  uint64_t taken_ns = mine ? hb_load_relaxed(&s->taken_ns) : 0, since = hb_load_relaxed(&s->since_ns);
  hb_store_relaxed(&s->holder, 0u);
  hb_store_relaxed(&s->holder_tid, 0u);
  hb_store_relaxed(&s->dropper, t->uid);
  hb_store_relaxed(&s->dropped_ns, now);
  g->waiting = hb_load_relaxed(&s->waiting);
  if (!g->waiting) return;
  if (taken_ns > since) since = taken_ns;
  uint64_t debt = hb_load_relaxed(&s->debt_ns) + (now > since ? now - since : 0);
  g->pending = HB_GIL_DROPPED;
  g->release_ns = now;
  g->taken_ns = taken_ns;
  g->debt_ns = debt >= hb.release_debt_ns << t->debt_shift ? debt : 0;
  hb_store_relaxed(&s->debt_ns, g->debt_ns ? 0 : debt);
}

/* Was the thread asked to drop it? The request is taken back later, by this very thread. hook path */
static int hb_gil_asked(const struct hb_tls *t) {
  const struct hb_modules *list = hb_modules_adopt(&hb_tables, hb.slot_index, hb.uid);
  const struct hb_python *o = hb_python_of(t, list);
  struct hb_py_pages p;
  uint64_t v = 0, interp;
  if (!o) return 0;
  hb_py_pages_begin(&p, t);
  if (o->request_runtime) return hb_py_field(&p, o->runtime + o->request_runtime, 4, &v) && v;
  uintptr_t ts = hb_py_thread(o, &p);
  if (!ts) return 0;
  if (o->request_thread) return hb_py_word(&p, ts + o->request_thread, &v) && v & 1;
  return hb_py_word(&p, ts + o->ts_interp, &interp) && hb_py_field(&p, interp + o->request_interp, 4, &v) && v;
}

/* The GIL's mutex has been let go: now there is time for records. hook path */
static HB_NOINLINE void hb_gil_tell(struct hb_tls *t, struct hb_py_gil *g, const void *frame) {
  uint32_t pending = g->pending;
  g->pending = 0;
  if (pending == HB_GIL_DROPPED) {
    uint64_t held = g->taken_ns ? g->release_ns - g->taken_ns : UINT64_MAX;
    if (g->debt_ns) hb_wait_adapt(t);
    uint32_t hook = hb_gil_asked(t) ? HB_HOOK_GIL_ASKED : HB_HOOK_GIL_DROP;
    hb_emit_release(t, hook, 0u, hb_load_relaxed(&hb.gil.at), g->release_ns, g->debt_ns, g->waiting, &hb_gil_taken, held, frame);
    return;
  }
  struct hb_thread *s = t->slot;
  uint64_t began = g->began, ns = hb_stamp_ns(began, hb_stamp());
  g->began = 0;
  hb_store_relaxed(&s->waits, hb_load_relaxed(&s->waits) + 1);
  hb_store_relaxed(&s->wait_ns, hb_load_relaxed(&s->wait_ns) + ns);
  if (ns < t->wait_threshold_ns) return;
  hb_wait_adapt(t);
  struct hb_interval i = {HB_HOOK_GIL, 0, g->owner, g->releaser, hb_load_relaxed(&hb.gil.at), 0, g->release_ns, began, 0};
  hb_emit_interval(t, &i, frame);
}

/* ---- what the wrappers of cond.h and lock.h do where the object is a part of the GIL ---- */

static HB_NOINLINE int hb_gil_signal(hb_lock_fn real, void *c) {
  hb_gil_noted(hb_is_gil(&hb.gil.switch_cond, c));
  return real(c);
}

static HB_NOINLINE int hb_gil_unlock(hb_lock_fn real, void *m) {
  int r = real(m);
  struct hb_tls *t = hb_self();
  struct hb_py_gil *g = hb_gil_notes(t);
  if (g && HB_UNLIKELY(g->pending)) hb_gil_tell(t, g, HB_FRAME);
  hb_compiler_barrier(); /* no tail call: the frame must still be there */
  return r;
}

/* `call` waits for cond. */
#define HB_GIL_WAIT(call)                                                  \
  do {                                                                     \
    struct hb_tls *self = hb_self();                                       \
    struct hb_py_gil *notes = hb_gil_notes(self);                          \
    struct hb_gil_wait gil_wait;                                           \
    if (!notes) return (call);                                             \
    hb_gil_wants(notes);                                                   \
    hb_gil_wait_begin(&gil_wait, self, notes, HB_FRAME);                   \
    int result = (call);                                                   \
    hb_gil_wait_end(&gil_wait, self, HB_FRAME);                            \
    return result;                                                         \
  } while (0)

#endif
