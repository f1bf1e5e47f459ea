/* stack.h: the stack of a hook or of interrupted code, and the thread's private memory that it is taken with: by unwind
 * tables and the remembered last stack (verify.h) as soon as the collector has published the process's tables, by
 * frame pointers until then and where there are none. */
#ifndef HB_STACK_H
#define HB_STACK_H

#include "python/memory.h"
#include "unwind/verify.h"

static struct hb_tables hb_tables; /* the session's region, mapped at attach; base NULL: there is none */

/* Where a thread took the hot locks that it holds (hooks/hold.h). */
#define HB_HELD 4
#define HB_HOLD_FRAMES 90 /* with few frames, two pages are touched */
struct hb_hold {
  uint64_t object;      /* 0: free */
  uint64_t acquired;    /* stamp; 0: it is still waited for */
  uint64_t begun;       /* stamp when it was asked for */
  uint32_t hook, flags /* HB_STACK_* */, omitted, n;
  uint64_t version;     /* of the memory that pc is a copy of */
  uint64_t pc[HB_HOLD_FRAMES]; /* leaf first; of a deeper stack the leaf's end */
};
_Static_assert(HB_HOLD_FRAMES == HB_PY_ROOM, "room in front of the words of Python frames");
struct hb_holds {
  struct hb_hold e[HB_HELD];
  uint64_t tick; /* in which `credit` stacks may still be taken */
  uint64_t version; /* of `last`: counts the stacks that differed from the one before */
  uint32_t credit, next;
  struct hb_memory last; /* of them: hb_local's is the one that was sent last, maybe from quite another place */
};
_Static_assert(sizeof(struct hb_holds) <= 16 << 10, "the agent's memory per thread that takes hot locks");

/* A recorded thread's: its last stack, scratch space for a walk, the unwind rules that it met last. Each array begins with a
 * page, so that a stack of usual depth touches one of each, and of the rules two: 24 KiB. */
struct hb_local {
  struct hb_memory last;
  uint64_t own_turn; /* counts sections (agent/own.h) */
  uint64_t pad[7];
  struct hb_taken scratch;
  struct hb_holds *holds; /* NULL until it takes a hot lock: then &held */
  uint64_t own_from; /* stamp at the begin of the section, where that is timed (agent/own.h) */
  struct hb_rules rules;
  _Alignas(4096) struct hb_holds held; /* untouched until then */
  _Alignas(4096) struct hb_py_local python; /* untouched before its first stack of Python */
};
_Static_assert(offsetof(struct hb_local, held) <= 32 << 10, "the agent's memory per sampled thread");
_Static_assert(!(offsetof(struct hb_local, last.read) & 4095) && !(offsetof(struct hb_local, scratch.f) & 4095) &&
                   !(offsetof(struct hb_local, scratch.read) & 4095) && !(offsetof(struct hb_local, rules.word) & 4095),
               "arrays begin with pages");
_Static_assert(sizeof(struct hb_frame) == sizeof(struct hb_kept), "scratch serves walks with and without memory");

/* A stack as it was taken: v.n frames in scratch, leaf first, standing on v.joined frames of the last one. */
struct hb_stack_taken {
  struct hb_walked w;
  struct hb_verified v;
  struct hb_cursor c;
  struct hb_unwind u;
  int remember; /* hb_memory_keep may have it; else it is kept without proof */
};

HB_INLINE int hb_is_self(uintptr_t pc) { return pc - hb.self_lo < hb.self_hi - hb.self_lo; }
HB_INLINE struct hb_frame *hb_scratch(struct hb_local *l) { return (struct hb_frame *)l->scratch.f; }

/* The thread's alternate signal stack, {0, 0} when it has none. Only the kernel knows: sigaltstack(2) may have been called
 * before we were there, or without libc. Also while a handler runs on it; a handler that had the kernel forget it meanwhile
 * (SS_AUTODISARM) stands on a stack that nobody knows. signal-safe; about 100 ns */
static struct hb_range hb_stack_alternate(void) {
  struct {
    uintptr_t lo;
    int flags;
    uintptr_t bytes;
  } s = {0, 0, 0}; /* stack_t */
  if (hb_is_err(hb_sys2(HB_SYS_sigaltstack, 0, &s)) || s.flags & 2 /* SS_DISABLE */ || s.lo + s.bytes < s.lo)
    return (struct hb_range){0, 0};
  return (struct hb_range){s.lo, s.lo + s.bytes};
}

/* Memory that is read before it is written is mapped twice, the second time with an interrupt of every processor that runs the
 * program: so the pages that a first stack touches are written first. signal-safe, under t->busy */
static HB_NOINLINE void hb_local_touch(struct hb_tls *t, struct hb_local *l) {
  volatile uint64_t *pages[] = {&l->last.generation, &l->last.read[0].at, &l->scratch.f[0].pc, &l->scratch.read[0].at, &l->own_from,
                                (uint64_t *)&l->rules.word[0], (uint64_t *)&l->rules.word[HB_RULE_WORDS / 2]};
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) *pages[i] = 0;
  t->flags &= ~(uint32_t)HB_TLS_FRESH;
}

/* A hook that we called ourselves: its caller's frames up to the program's are left out, by our own rows, and where there are none yet
 * by frame records, which do not tell where the caller's stack begins. signal-safe, under t->busy */
static void hb_stack_skip_self(const struct hb_unwind *u, struct hb_cursor *c) {
  if (c->exact) return;
  if (u->modules && u->rules) hb_rules_renew(u->rules, u->modules);
  for (uint32_t i = 0; i < 16 && hb_in(u->self, c->pc); i++) {
    if (u->modules && c->hi != c->sp) {
      if (hb_step_slow(u, c) != HB_WALK_ON) return;
    } else {
      const uintptr_t *f = (const uintptr_t *)c->bp;
      if (c->bp & 7 || c->bp < c->sp || c->bp >= c->hi || c->hi - c->bp < 16) return;
      c->pc = hb_strip(f[1]), c->bp = f[0], c->sp = (uintptr_t)(f + 2), c->at = c->sp - 8;
    }
  }
}

/* Where a walk of the stack begins: x->c and x->u. */
HB_INLINE void hb_stack_begin(struct hb_tls *t, const void *frame, const void *uc, const struct hb_modules *list, struct hb_stack_taken *x) {
  struct hb_range stack = {t->stack_lo, t->stack_hi}, alternate = {0, 0};
  struct hb_cursor *c = &x->c;
  if (frame) {
#if !HB_RA_SAVED /* each frame record says where the caller's stack begins */
    const uintptr_t *f = frame;
    while (hb_is_self(f[1]) && hb_in(stack, f[0]) && !(f[0] & 7) && f[0] > (uintptr_t)f && f[0] <= stack.hi - 16) /* called by ourselves */
      f = (const uintptr_t *)f[0];
    frame = f;
#endif
    hb_cursor_hook(c, frame, stack);
  } else {
    hb_cursor_signal(c, uc, stack);
  }
  if (HB_UNLIKELY(c->hi == c->sp)) { /* not on the thread's own */
    alternate = hb_stack_alternate();
    if (hb_in(alternate, c->sp)) {
      c->lo = alternate.lo;
      c->hi = alternate.hi;
    } else { /* a coroutine's */
      uintptr_t hi = hb_stack_probe(c->sp, HB_PROBE_PAGES);
      c->lo = c->sp & ~(uintptr_t)4095;
      c->hi = hi ? hi : c->sp;
    }
  }
  x->u = (struct hb_unwind){hb_tables.base, list, &t->local->rules, {hb.self_lo, hb.self_hi}, {hb.start_lo, hb.start_hi}, {stack, alternate}};
  if (HB_RA_SAVED) hb_stack_skip_self(&x->u, c);
}

/* Deeper than is kept whole, or without rows: walked for both ends, joining nothing. signal-safe, under t->busy */
static HB_NOINLINE void hb_stack_whole(struct hb_tls *t, const void *frame, const void *uc, const struct hb_modules *list, struct hb_stack_taken *x) {
  struct hb_cursor *c = &x->c;
  hb_stack_begin(t, frame, uc, list, x);
  x->w = (struct hb_walked){0, 0, 0};
  x->remember = 0;
  struct hb_collect all = {hb_scratch(t->local), 0};
  hb_collect_add(&all, hb_pc(c->how, c->pc), c->at);
  if (c->hi == c->sp) {
    x->w.flags |= HB_STACK_CUT;
  } else if (list) {
    hb_walk_table(&x->u, c, &all, &x->w);
  } else {
    if (c->exact) x->w.flags |= HB_STACK_GUESSED; /* a leaf may have no frame of its own yet, or none at all */
    hb_walk_fp(&all, &x->w, c->bp, c->sp, c->hi);
  }
  hb_collect_end(&all, &x->w);
  x->v = (struct hb_verified){0, x->w.n, 0, 0, HB_WALK_ON};
}

/* The stack of a hook's frame, or else of interrupted code, joining the one that m remembers. signal-safe, under t->busy */
static HB_NOINLINE void hb_stack_take(struct hb_tls *t, const void *frame, const void *uc, struct hb_stack_taken *x, struct hb_memory *m) {
  struct hb_local *l = t->local;
  if (HB_UNLIKELY(t->flags & HB_TLS_FRESH)) hb_local_touch(t, l);
  const struct hb_modules *list = hb_modules_adopt(&hb_tables, hb.slot_index, hb.uid);
  if (HB_LIKELY(list != NULL)) {
    hb_stack_begin(t, frame, uc, list, x);
    if (HB_LIKELY(x->c.hi != x->c.sp)) {
      if (t->need_full) l->last.solid = 0; /* the record must stand alone: join nothing */
      x->w = (struct hb_walked){0, 0, 0};
      x->remember = 1;
      hb_walk_verify(&x->u, &x->c, m, &l->scratch, &x->w, &x->v);
      if (HB_LIKELY(x->v.end != HB_WALK_LIMIT)) return;
    }
  }
  hb_stack_whole(t, frame, uc, list, x);
}

/* Stack of a hook: `frame` is the wrapper's __builtin_frame_address(0), so its return address is certain. Our own
 * frames are left out. signal-safe, under t->busy */
HB_INLINE void hb_stack_hook_in(struct hb_tls *t, const void *frame, struct hb_stack_taken *x, struct hb_memory *m) {
  hb_stack_take(t, frame, NULL, x, m);
}

HB_INLINE void hb_stack_hook(struct hb_tls *t, const void *frame, struct hb_stack_taken *x) {
  hb_stack_hook_in(t, frame, x, &t->local->last);
}

/* Stack of interrupted code; `uc` is the handler's third argument. signal-safe, under t->busy */
HB_INLINE void hb_stack_signal(struct hb_tls *t, const void *uc, struct hb_stack_taken *x) {
  hb_stack_take(t, NULL, uc, x, &t->local->last);
}

#endif
