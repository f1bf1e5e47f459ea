/* emit.h: turning what a hook or a signal saw into records. Everything that walks a stack goes through
 * hb_begin/hb_end, which keep a signal from interleaving its record with the one being built. */
#ifndef HB_EMIT_H
#define HB_EMIT_H

#include "agent/own.h"
#include "concurrentring/producer.h"
#include "python/names.h"
#include "sampler/points.h"
#include "unwind/delta.h"

static int hb_thread_ready(struct hb_tls *t);
static uint64_t hb_alloc_gap(struct hb_tls *t);
#define HB_ALLOC_BURST 64      /* samples that a thread may take at once; a burst keeps its precision */
#define HB_WORTH_SHIFT 16     /* of struct hb_rec_sample.worth, beside HB_RECF_* */
#define HB_WAIT_BURST 64       /* waits and releases that a thread may record at once */
static void hb_take_sample(struct hb_tls *t, uint32_t ask, uint32_t hook, const void *uc, const void *frame,
                           uint32_t rec_flags, uint64_t cpu);

/* Number the record and write it; a dropped one is counted and breaks the delta chain. signal-safe, under busy */
static int hb_put_two(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *f, uint32_t n,
                      const uint64_t *more, uint32_t more_n) {
  struct hb_thread *s = t->slot;
  rec->thread = t->uid;
  rec->seq = ++t->seq;
  hb_store_relaxed(&s->seq, t->seq);
  if (HB_LIKELY(hb_ring_put_two(t, rec, fixed, f, n, more, more_n))) return 1;
  t->need_full = 1;
  hb_add_relaxed(&s->lost, 1u);
  HB_COUNT(lost);
  uint64_t beat = hb_load_relaxed(&hb.header->heartbeat_ns);
  if (beat && rec->time_ns > beat + HB_SILENCE_NS) { /* nobody reads: no more work for that until somebody does */
    hb_store_relaxed(&hb.slot->disabled, (uint32_t)HB_OFF_COLLECTOR_SILENT);
    hb_store_relaxed(&hb.silent_beat, beat);
  }
  return 0;
}

static int hb_put(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *f, uint32_t n) {
  return hb_put_two(t, rec, fixed, f, n, NULL, 0);
}

/* Where this process's Python keeps its frames; NULL: nothing is known of any. signal-safe */
HB_INLINE const struct hb_python *hb_python_of(const struct hb_tls *t, const struct hb_modules *list) {
  if (HB_LIKELY(!list || !list->python) || t->flags & HB_TLS_ALONE) return NULL;
  return (const struct hb_python *)(hb_tables.base + list->python);
}

/* A record that ends in a stack: as a difference to the thread's last one; with its frames of Python, and then with `taken_n` more
 * frames. signal-safe, under busy */
static void hb_put_stack_and(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, struct hb_stack *s, struct hb_stack_taken *x,
                             const struct hb_hold *hold, struct hb_stack *taken);

static void hb_put_stack(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, struct hb_stack *s,
                         struct hb_stack_taken *x) {
  hb_put_stack_and(t, rec, fixed, s, x, NULL, NULL);
}

static void hb_rec_init(struct hb_rec *r, uint32_t type, uint32_t hook, uint32_t flags, uint64_t time_ns) {
  r->bytes = 0;
  r->type = (uint8_t)type;
  r->flags = (uint8_t)flags;
  r->hook = (uint16_t)hook;
  r->time_ns = time_ns;
}

/* Say who this thread is, until the ring has taken it: every other record refers to it. under busy */
static void hb_announce(struct hb_tls *t) {
  struct hb_thread *s = t->slot;
  struct hb_rec_thread r;
  hb_rec_init(&r.rec, HB_REC_THREAD, 0, 0, hb_now_ns());
  r.proc_uid = s->proc_uid;
  r.tid = s->tid;
  r.parent_uid = s->parent_uid;
  r.flags = hb_load_relaxed(&s->flags);
  r.start_ns = s->start_ns;
  r.start_routine = s->start_routine;
  r.cpu_start_ns = s->cpu_start_ns;
  for (int i = 0; i < HB_NAME_BYTES; i++) r.name[i] = s->name[i];
  if (hb_put(t, &r.rec, sizeof r, NULL, 0)) t->announced = 1;
}

/* Somebody is in the section already: a handler of the target interrupted it and called a hook (refused: the last
 * stack is half-written), or left it by a siglongjmp, which our frame lying above the section's tells. Then
 * what it held is given back. hook path */
static HB_NOINLINE int hb_begin_again(struct hb_tls *t, uintptr_t sp) {
  if (sp <= t->busy_sp || !hb_stack_end(t, sp) || !hb_stack_end(t, t->busy_sp)) {
    HB_COUNT(walks_refused);
    return 0;
  }
  if (t->holds) { /* only if it is ours: the CAS may not have happened, or not have won */
    uint32_t mine = t->uid;
    hb_cas_seq(&hb.subbufs[t->holds - 1].lock, &mine, 0u);
  }
  t->holds = 0;
  t->need_full = 1;
  return 1;
}

/* Does somebody else run with this thread's storage? clone() gives its child another stack but, unless told to, its maker's
 * thread pointer: both would write the thread's memory at once, and one of them in the other's name. signal-safe; about 100 ns */
static HB_NOINLINE int hb_foreign(const struct hb_tls *t) {
  if ((uint32_t)hb_sys1(HB_SYS_gettid, 0) == t->tid) return 0;
  HB_COUNT(walks_refused);
  return 1;
}

static void hb_end_last(struct hb_tls *t);

/* Nobody read, and the ring was full. Is it still so? A recorder that was stopped goes on where it was, and so do we; what was
 * not recorded meanwhile is counted as lost. signal-safe, in the section */
static HB_NOINLINE int hb_silent(struct hb_tls *t) {
  struct hb_thread *s = t->slot;
  if (hb_load_relaxed(&hb.header->heartbeat_ns) != hb_load_relaxed(&hb.silent_beat)) {
    hb_store_relaxed(&hb.silent_beat, (uint64_t)0);
    hb_store_relaxed(&hb.slot->disabled, (uint32_t)HB_OFF_NO);
    return 0;
  }
  t->need_full = 1;
  hb_store_relaxed(&s->seq, ++t->seq);
  hb_add_relaxed(&s->lost, 1u);
  HB_COUNT(lost);
  return 1;
}

/* Enter the agent's own section; 0 when it is taken, or another's. Only on a stack that is not known to be the thread's is it
 * asked whose. signal-safe */
static int hb_begin(struct hb_tls *t) {
  uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
  if (HB_UNLIKELY(hb_load_relaxed(&hb_calls_shut))) return 0; /* clocks may not have been read any more */
  if (HB_UNLIKELY(!hb_stack_end(t, sp)) && hb_foreign(t)) return 0;
  if (HB_UNLIKELY(t->busy_sp) && !hb_begin_again(t, sp)) return 0;
  t->busy_sp = sp; /* one word says both that and where: a handler comes before it or after it */
  hb_compiler_barrier();
  if (HB_UNLIKELY(hb_load_relaxed(&hb.silent_beat)) && hb_silent(t)) {
    hb_end_last(t); /* a signal that came meanwhile finds the same */
    t->deferred = 0;
    return 0;
  }
  hb_own_begin(t);
  return 1;
}

/* Leave the section for good: nothing of this thread is recorded any more. */
static void hb_end_last(struct hb_tls *t) {
  hb_compiler_barrier();
  t->busy_sp = 0;
  hb_compiler_barrier();
}

static void hb_deferred(struct hb_tls *t, int at_random, const void *frame);

/* Leave the section. A signal that fell into it takes its sample now: at_random, frame as in hb_deferred. frame NULL: in the
 * signal's own handler. signal-safe */
static void hb_end(struct hb_tls *t, int at_random, const void *frame) {
  hb_own_end(t, frame == NULL);
  hb_end_last(t);
  if (HB_UNLIKELY(t->deferred) && frame) hb_deferred(t, at_random, frame);
}

/* Counters that live in thread-local storage, for others to see. hook path */
static void hb_publish_counters(struct hb_tls *t, struct hb_thread *s) {
  hb_store_relaxed(&s->alloc_objects, t->alloc_objects);
  hb_store_relaxed(&s->alloc_bytes, t->alloc_given - t->alloc_left);
  hb_store_relaxed(&s->free_objects, t->free_objects);
}

/* One sample record. frame: the wrapper's frame (synchronous); uc: the interrupted context (async); exactly one of
 * them is not NULL. signal-safe */
static void hb_emit_any(struct hb_tls *t, uint32_t kind, uint32_t hook, uint64_t object, const void *uc,
                        const void *frame, uint32_t rec_flags, uint64_t cpu_ns, uint64_t weight_ns) {
  if (HB_UNLIKELY(!hb_begin(t))) return;
  if (HB_UNLIKELY(!t->announced)) hb_announce(t);
  struct hb_rec_sample r;
  struct hb_stack_taken x;
  if (uc) {
    hb_stack_signal(t, uc, &x);
  } else {
    hb_stack_hook(t, frame, &x);
  }
  hb_rec_init(&r.rec, HB_REC_SAMPLE, hook, rec_flags, hb_now_ns());
  r.kind = kind;
  r.worth = rec_flags >> HB_WORTH_SHIFT;
  r.cpu_ns = cpu_ns;
  r.weight_ns = weight_ns;
  r.object = object;
  hb_put_stack(t, &r.rec, sizeof r, &r.stack, &x);
  t->tick = hb_load_relaxed(&hb.header->tick);
  hb_store_relaxed(&t->slot->last_tick, t->tick);
  hb_end(t, 0, frame);
}

static void hb_emit_sample(struct hb_tls *t, uint32_t kind, uint32_t hook, uint64_t object, const void *uc,
                           const void *frame, uint32_t rec_flags) {
  hb_emit_any(t, kind, hook, object, uc, frame, rec_flags, 0, 0);
}

static void hb_emit_cpu(struct hb_tls *t, uint32_t hook, uint64_t run, const void *uc, const void *frame, uint32_t rec_flags,
                        uint64_t cpu_ns, uint64_t weight_ns) {
  if (HB_LIKELY(cpu_ns)) hb_store_relaxed(&t->slot->cpu_ns, cpu_ns);
  hb_add_relaxed(&t->slot->samples, (uint64_t)1);
  hb_emit_any(t, HB_SAMPLE_PERIODIC, hook, run, uc, frame, rec_flags, cpu_ns, weight_ns);
}

/* The sampler asked for a sample. Inside our own section it is taken when that ends (hb_deferred). One that is taken
 * at a call's entry instead (HB_RECF_CONSUMED) is for the timeline only: the entry itself sees to the CPU time. cpu: the
 * thread's CPU time, 0 where its clock has not been read yet. signal-safe */
static void hb_take_sample(struct hb_tls *t, uint32_t ask, uint32_t hook, const void *uc, const void *frame,
                           uint32_t rec_flags, uint64_t cpu) {
  if (!t->local || !hb_load_relaxed(&hb.header->recording) || !hb_load_relaxed(&hb.on)) return;
  if (t->busy_sp) {
    t->deferred = (ask & 0xffu) | (rec_flags & 0xffu) << 8;
    return;
  }
  if (ask == HB_ASK_PERIODIC && !(rec_flags & HB_RECF_CONSUMED)) {
    if (!cpu) cpu = hb_thread_cpu_ns();
    uint64_t weight = hb_points_pass(t, cpu, hb_stamp());
    hb_emit_cpu(t, hook, t->left_pc, uc, frame, rec_flags, cpu, weight);
    if (uc) hb_own_met(t->slot, hb_ucontext_pc(uc), weight);
    if (uc) { /* what is left of the run tells which kind it was: hb_sample_point looks at the next call */
      t->left_stamp = hb_stamp();
      t->cpu_bound = HB_POINT_MET;
    }
    return;
  }
  hb_add_relaxed(&t->slot->samples, (uint64_t)1);
  hb_emit_sample(t, HB_SAMPLE_GAP, hook, 0, uc, frame, rec_flags);
}

/* A signal fell into our own section. at_random: the section has nothing to do with when signals are sent, so the call that it serves is
 * met in it as any other place is. Others begin when the tick moves, and so do signals: that one of them was met says nothing of where the
 * program works, and the sample only passes points, as the call's entry does. hook path */
static HB_NOINLINE void hb_deferred(struct hb_tls *t, int at_random, const void *frame) {
  uint32_t ask = t->deferred & 255, flags = t->deferred >> 8;
  t->deferred = 0;
  if (!t->local || !hb_load_relaxed(&hb.header->recording) || !hb_load_relaxed(&hb.on)) return;
  if (ask == HB_ASK_PERIODIC) {
    uint64_t cpu = hb_thread_cpu_ns(), weight = hb_points_pass(t, cpu, hb_stamp());
    hb_emit_cpu(t, 0, t->left_pc, NULL, frame, at_random ? flags : HB_RECF_CONSUMED, cpu, weight);
  } else {
    hb_take_sample(t, ask, 0, NULL, frame, 0, 0);
  }
}

/* Where the run of work that ends now began, if a signal from another CPU might have arrived in it. One that was over before
 * that has nothing to do with longer ones after the same call, in which all of them arrive: who makes the next call is the
 * best that is known of it. hook path */
HB_INLINE uint64_t hb_run_of_work(const struct hb_tls *t, uint64_t stamp) {
  return hb_stamp_ns(t->left_stamp, stamp) >= HB_SHORT_RUN_NS ? t->left_pc : 0;
}

/* CPU time was burned up to or inside the call at whose hook the thread stands, and a sampling point may lie in it
 * (sampler/points.h). inside: the call has just been left and is where the time went; otherwise it is about to be
 * entered, and what called it is the best that is known. Nobody signals the thread meanwhile. Returns whether a
 * sample was taken. hook path; keeps errno */
static HB_NOINLINE int hb_sample_point(struct hb_tls *t, uint32_t hook, int inside, const void *frame) {
  if ((uint32_t)hb_sys1(HB_SYS_gettid, 0) != t->tid) return 0; /* a vfork child, on its parent's memory */
  uint32_t met = t->cpu_bound == HB_POINT_MET;
  uint64_t stamp = hb_stamp(), run = hb_signalled(t) ? hb_run_of_work(t, stamp) : 0;
  uint64_t cpu = hb_thread_cpu_ns(), weight = hb_points_pass(t, cpu, stamp);
  hb_own_timed(t->slot, stamp, hb_stamp(), 1);
  /* A sample was met in a run that is over at once. A CPU on which the sampler wakes up stands still for longer than the
   * run takes, so such are met, too; but not among those of long runs are they to be counted. */
  uint32_t alone = met && !inside && !run && hb_signalled(t) ? HB_RECF_ALONE : 0u;
  if ((!weight && !alone) || !t->local || t->busy_sp || !hb_load_relaxed(&hb.header->recording) || !hb_load_relaxed(&hb.on)) return 0;
  if (inside)
    hb_emit_cpu(t, hook, 0, NULL, frame, 0, cpu, weight);
  else
    hb_emit_cpu(t, 0, run, NULL, frame, HB_RECF_CONSUMED | alone, cpu, weight);
  return 1;
}

/* A point may lie in the call that has just been left, while no signal can come between. hook path */
static HB_NOINLINE void hb_sample_inside(struct hb_tls *t, uint32_t hook, const void *frame) {
  hb_sample_point(t, hook, 1, frame);
  t->left_stamp = hb_stamp(); /* what that took is no part of the run of work that begins */
}

/* Is a signal of the sampler's on its way, and about to be here? It brings the thread's sample for this tick. A section
 * of ours that began because the tick had moved would meet it, and functions that call hooks often be met less than others. hook path */
HB_INLINE int hb_signal_comes(const struct hb_tls *t) {
  if (hb_load_relaxed(&t->slot->state) != HB_SIGNALLED) return 0;
  uint64_t asked = hb_load_relaxed(&t->slot->asked_ns);
  return hb_now_ns() - asked < HB_PROMPT_NS; /* not one that the target has blocked behind our back */
}

/* Sample at a hook: the first one in a new tick, or on entering a parking call. hook path */
static void hb_signal_followed(struct hb_tls *t);
static HB_NOINLINE void hb_sample_hook(struct hb_tls *t, uint32_t kind, uint32_t hook, uint64_t object,
                                       const void *frame) {
  if (!hb_thread_ready(t)) {
    t->tick = hb_load_relaxed(&hb.header->tick);
    return;
  }
  hb_publish_counters(t, t->slot);
  if (HB_UNLIKELY((t->flags & HB_TLS_MOVED) != hb.moved)) hb_signal_followed(t);
  if (!hb_load_relaxed(&hb.header->recording) || (kind == HB_SAMPLE_SYNC && hb_signal_comes(t))) {
    t->tick = hb_load_relaxed(&hb.header->tick);
    return;
  }
  if (HB_UNLIKELY(!hb_signalled(t)) && hb_point_near(t, hb_stamp()) && hb_sample_point(t, hook, 0, frame)) return;
  hb_emit_sample(t, kind, hook, object, NULL, frame, 0);
}

/* The gate: has the tick moved since this thread's last sample? One load, one compare. hook path */
HB_INLINE int hb_new_tick(const struct hb_tls *t) { return hb_load_relaxed(&hb.header->tick) != t->tick; }

/* Remember how shallow the stack has been. `cfa` is the stack pointer after the hook's return. hook path */
HB_INLINE void hb_saw_depth(struct hb_tls *t, const void *cfa) {
  if ((uintptr_t)cfa > t->shallowest) t->shallowest = (uintptr_t)cfa;
}

/* What an interval looked like when it ended. */
struct hb_interval {
  uint32_t hook, flags, owner_tid, releaser;
  uint64_t object, object2, release_ns, began; /* began: stamp */
  int64_t result;
};

/* To the program it lasts until the hook returns: what else there is to be done is done first. hook path */
static HB_NOINLINE void hb_emit_interval(struct hb_tls *t, const struct hb_interval *i, const void *frame) {
  if (!hb_thread_ready(t) || !hb_load_relaxed(&hb.header->recording)) return;
  if (HB_UNLIKELY(!hb_begin(t))) return;
  if (HB_UNLIKELY(!t->announced)) hb_announce(t);
  struct hb_rec_interval r;
  struct hb_stack_taken x;
  hb_stack_hook(t, frame, &x);
  hb_rec_init(&r.rec, HB_REC_INTERVAL, i->hook, i->flags, hb_now_ns());
  r.start_ns = r.rec.time_ns - hb_stamp_ns(i->began, hb_stamp());
  r.object = i->object;
  r.object2 = i->object2;
  r.result = i->result;
  r.owner_tid = i->owner_tid;
  r.releaser = i->releaser;
  r.release_ns = i->release_ns;
  hb_put_stack(t, &r.rec, sizeof r, &r.stack, &x);
  t->tick = hb_load_relaxed(&hb.header->tick);
  hb_store_relaxed(&t->slot->last_tick, t->tick);
  hb_publish_counters(t, t->slot);
  hb_end(t, 0, frame);
}

/* The outermost proxied call is being left without its wrapper: by an exception, a cancellation or a jump. Its frame is
 * still whole. hook path */
static void hb_emit_unwound(struct hb_tls *t, struct hb_thread *s) {
  uint32_t hook = hb_load_relaxed(&s->in_hook);
  uint64_t now = hb_stamp();
  if (!hook || !t->outer.sp || t->outer_stamp == 0 || now - t->outer_stamp < hb.call_threshold) return;
  struct hb_interval i = {hook, HB_RECF_UNWOUND, hb_load_relaxed(&s->in_owner_tid), 0, hb_load_relaxed(&s->in_object), 0, 0,
                          t->outer_stamp, 0};
  t->outer_stamp = 0; /* once */
  hb_emit_interval(t, &i, hb_outer_frame(t->outer));
}

/* Describe where a lock was taken against the stack that the thread's last record has. Frames are equal when they return
 * to the same place, of whatever call. Returns how many of hold->pc are to be sent. under busy */
static uint32_t hb_taken_delta(const struct hb_tls *t, const struct hb_hold *hold, struct hb_stack *s) {
  const struct hb_memory *m = &t->local->last;
  uint32_t same = 0, n = hold->n;
  if (!(hold->flags & (HB_STACK_CUT | HB_STACK_OMITTED)))
    while (same < n && same < m->depth && !((hold->pc[n - 1 - same] ^ m->f[same].pc) & HB_PC_BITS))
      same++; /* which way a frame was found is no difference */
  s->same = (uint16_t)same;
  s->count = (uint16_t)(n - same);
  s->flags = (uint16_t)hold->flags;
  s->omitted = hold->omitted;
  return n - same;
}

/* Where the GIL was taken is not kept, only when. */
static struct hb_hold hb_gil_taken = {.flags = HB_STACK_NONE};

/* Find the GIL: once. signal-safe, under t->busy */
static HB_NOINLINE void hb_gil_find(const struct hb_tls *t, const struct hb_python *o) {
  struct hb_py_pages p;
  uint64_t gil = o->gil, interp;
  hb_py_pages_begin(&p, t);
  if (!gil && (!hb_py_word(&p, o->runtime + o->main_interp, &interp) || !interp || !hb_py_word(&p, interp + o->interp_gil, &gil))) return;
  if (!gil || gil & 7 || !hb_py_can(&p, gil) || !hb_py_can(&p, gil + o->gil_switch)) return;
  hb_gil_taken.object = gil;
  hb_store_relaxed(&hb.gil.mutex, gil + o->gil_mutex);
  hb_store_relaxed(&hb.gil.switch_cond, gil + o->gil_switch);
  hb_store_relaxed(&hb.gil.cond, gil + o->gil_cond);
  hb_store_relaxed(&hb.gil.at, gil);
}

static HB_NOINLINE void hb_put_python(struct hb_tls *t, const struct hb_python *o, struct hb_rec *rec, uint32_t fixed, struct hb_stack *s,
                                      struct hb_stack_taken *x, const struct hb_hold *hold, struct hb_stack *taken) {
  struct hb_py_local *py = &t->local->python;
  if (HB_UNLIKELY(!hb_load_relaxed(&hb.gil.at)) && !o->free_threaded) hb_gil_find(t, o);
  uint16_t full = t->need_full, dropped;
  t->need_full = 0;
  hb_py_take(t, o);
  dropped = t->need_full; /* of the functions' records: this one's stack was taken before that was known */
  t->need_full = full;
  hb_delta(t, x, s);
  t->need_full = dropped;
  uint32_t more = hold ? hb_taken_delta(t, hold, taken) : 0, words = py->words;
  if (fixed + 8 * (s->count + words + more) > HB_MAX_RECORD) words = 0;
  if (words) {
    hb_py_place_all(o, &t->local->last, py, !(s->flags & (HB_STACK_CUT | HB_STACK_OMITTED)));
    s->python = (uint16_t)words;
  }
  uint64_t *end = py->room + HB_PY_ROOM;
  for (uint32_t i = 0; i < more; i++) end[(int32_t)i - (int32_t)more] = hold->pc[i];
  hb_put_two(t, rec, fixed, hb_scratch(t->local), s->count, end - more, words + more);
}

static void hb_put_stack_and(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, struct hb_stack *s, struct hb_stack_taken *x,
                             const struct hb_hold *hold, struct hb_stack *taken) {
  const struct hb_python *o = hb_python_of(t, x->u.modules);
  if (HB_UNLIKELY(o)) {
    hb_put_python(t, o, rec, fixed, s, x, hold, taken);
    return;
  }
  hb_delta(t, x, s);
  t->need_full = 0; /* hb_put sets it again when the record is dropped */
  uint32_t more = hold ? hb_taken_delta(t, hold, taken) : 0;
  hb_put_two(t, rec, fixed, hb_scratch(t->local), s->count, hold ? hold->pc : NULL, more);
}

/* Something was let go while somebody waited. time_ns is that of the baton, so that the waiter's record and this
 * one can be joined exactly. Without a stack when debt_ns is 0: one that caused little delay. hold: where it was taken,
 * and ns how long ago; NULL: unknown, and ns is how long the call that woke somebody took, 0 or UINT64_MAX where none did. hook path */
static HB_NOINLINE void hb_emit_release(struct hb_tls *t, uint32_t hook, uint32_t flags, uint64_t object, uint64_t time_ns, uint64_t debt_ns,
                                        uint32_t woken, const struct hb_hold *hold, uint64_t ns, const void *frame) {
  if (!hb_thread_ready(t) || !hb_load_relaxed(&hb.header->recording)) return;
  if (HB_UNLIKELY(!hb_begin(t))) return;
  if (HB_UNLIKELY(!t->announced)) hb_announce(t);
  if (hold && hold->object != object) hold = NULL; /* a handler's lock took the place meanwhile */
  struct hb_rec_release r;
  struct hb_stack_taken x;
  hb_rec_init(&r.rec, HB_REC_RELEASE, hook, flags, time_ns);
  r.object = object;
  r.debt_ns = debt_ns;
  r.acquired_ns = 0;
  if (hold && ns < time_ns) r.acquired_ns = time_ns - ns;
  if (!hold && ns && ns < UINT64_MAX / 2) r.acquired_ns = time_ns + ns;
  r.woken = woken;
  r.taken_hook = 0;
  memset(&r.taken, 0, sizeof r.taken);
  r.taken.flags = HB_STACK_NONE;
  if (debt_ns) {
    hb_stack_hook(t, frame, &x);
    if (hold) r.taken_hook = hold->hook;
    hb_put_stack_and(t, &r.rec, sizeof r, &r.stack, &x, hold, &r.taken);
  } else {
    memset(&r.stack, 0, sizeof r.stack);
    r.stack.flags = HB_STACK_NONE;
    hb_put(t, &r.rec, sizeof r, NULL, 0);
  }
  hb_end(t, 0, frame);
}

#endif
