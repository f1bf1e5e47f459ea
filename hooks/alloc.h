/* alloc.h: the malloc family. Exact totals always; stacks by unbiased byte sampling.
 *
 * The gap to the next sampled byte is drawn from an exponential distribution of mean alloc_period (as tcmalloc
 * and heapprofd do), so an allocation of n bytes is sampled with probability 1 - exp(-n/period), whatever came
 * before, and the collector weights it with the inverse. A thread that keeps allocating so fast that it would be
 * sampled more than HB_ALLOC_PER_TICK times a tick doubles its own period, and halves it again when it slows down: each
 * sample says which period was in force, so the sums stay unbiased and the cost stays bounded. A sampled address is remembered until it is freed: a
 * small counting filter keeps every other free to one byte test. realloc is a free and an allocation.
 *
 * The fast paths end in a tail call, so the allocator's caller is the program and the cost is the gate's. */
#ifndef HB_ALLOC_H
#define HB_ALLOC_H

#include "agent/real.h"
#include "agent/thread.h"
#include "hooks/live.h"

/* -log2(u) for u in (0, 1), by a quartic on the mantissa (error < 2e-4). hook path */
static double hb_minus_log2(uint64_t u53) {
  int shift = __builtin_clzll(u53);
  uint64_t m = u53 << shift << 1; /* mantissa without its leading one, 64 fractional bits */
  double x = (double)(m >> 12) * (1.0 / 4503599627370496.0); /* [0, 1) */
  double log2_1x = x * (1.43847 + x * (-0.67763 + x * (0.32187 + x * -0.08273)));
  return (double)(shift - 9) - log2_1x; /* u53 < 2^54 */
}

/* Bytes until the next sampled one. hook path */
static uint64_t hb_alloc_gap(struct hb_tls *t) {
  uint64_t x = t->random;
  if (!(hb.features & HB_FEATURE_ALLOC)) return UINT64_MAX / 4;
  if (hb.alloc_period <= 1) return 0;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17; /* xorshift64, Marsaglia 2003 */
  t->random = x;
  uint64_t knob = hb_load_relaxed(&hb.header->knob_alloc_period);
  if (HB_UNLIKELY(knob > t->alloc_period) && knob >> 40 == 0) t->alloc_period = knob; /* the sample at the gap's end says so */
  double gap = hb_minus_log2((x >> 10) | 1) * 0.6931471805599453 * (double)t->alloc_period;
  return gap < 1 ? 1 : (uint64_t)gap;
}

#define HB_ALLOC_COARSEST 1024 /* times the session's period, at most */
#define HB_ALLOC_PER_TICK 1    /* and how many more for each tick that passes */

/* After a sample, before the next gap is drawn. The choice depends on the past only, as unbiasedness asks. hook path */
static void hb_alloc_adapt(struct hb_tls *t) {
  uint64_t tick = hb_load_relaxed(&hb.header->tick), earned = (tick - t->alloc_tick) * HB_ALLOC_PER_TICK;
  t->alloc_tick = tick;
  if (hb.alloc_period <= 1) return; /* every allocation was asked for */
  uint64_t credit = t->alloc_credit + (earned < HB_ALLOC_BURST ? earned : HB_ALLOC_BURST);
  if (credit > HB_ALLOC_BURST) credit = HB_ALLOC_BURST;
  if (credit) credit--;
  if (credit == 0 && t->alloc_period / HB_ALLOC_COARSEST < hb.alloc_period) {
    t->alloc_period *= 2;
    credit = HB_ALLOC_BURST / 4; /* so many at this period before the next doubling: no one sample weighs much */
  } else if (credit > HB_ALLOC_BURST / 2 && t->alloc_period > hb.alloc_period) {
    t->alloc_period /= 2;
  }
  t->alloc_credit = (uint16_t)credit;
}

/* under busy */
static void hb_put_free(struct hb_tls *t, uint64_t addr) {
  struct hb_rec_free r;
  hb_rec_init(&r.rec, HB_REC_FREE, HB_HOOK_free, 0, hb_now_ns());
  r.addr = addr;
  hb_put(t, &r.rec, sizeof r, NULL, 0);
}

/* under busy */
static HB_NOINLINE void hb_put_orphans(struct hb_tls *t) {
  for (uint32_t i = 0; i < HB_ORPHAN_FREES; i++) {
    uint64_t addr = hb_orphan_take(i);
    if (!addr) continue;
    hb_put_free(t, addr);
    hb_orphan_done(i);
  }
}

/* hook path */
static void hb_emit_alloc(struct hb_tls *t, uint32_t hook, uint64_t addr, uint64_t bytes, uint64_t period,
                          const void *frame) {
  if (!hb_begin(t)) return;
  if (HB_UNLIKELY(!t->announced)) hb_announce(t);
  if (HB_UNLIKELY(hb_load_acquire(&hb.wiped->orphan_frees))) {
    hb_put_orphans(t);
    if (hb_orphan_due(addr)) { /* another thread writes it just now, later than this: rather not seen at all */
      HB_COUNT(alloc_table_full);
      hb_end(t, 1, frame);
      return;
    }
  }
  struct hb_rec_alloc r;
  struct hb_stack_taken x;
  hb_rec_init(&r.rec, HB_REC_ALLOC, hook, 0, hb_now_ns());
  r.addr = addr;
  r.bytes = bytes;
  r.period = period;
  r.tracked = (uint32_t)hb_alloc_track(addr);
  r.reserved = 0;
  hb_stack_hook(t, frame, &x);
  hb_put_stack(t, &r.rec, sizeof r, &r.stack, &x);
  t->tick = hb_load_relaxed(&hb.header->tick);
  hb_store_relaxed(&t->slot->last_tick, t->tick);
  hb_publish_counters(t, t->slot);
  hb_end(t, 1, frame);
}

/* A sampled address is free, or about to be. hook path */
static HB_NOINLINE void hb_emit_free(struct hb_tls *t, uint64_t addr) {
  if (!hb_load_relaxed(&hb.header->recording)) return;
  if (!hb_thread_ready(t) || !hb_begin(t)) {
    hb_orphan_free(addr);
    return;
  }
  if (HB_UNLIKELY(!t->announced)) hb_announce(t);
  hb_put_free(t, addr);
  hb_end(t, 1, HB_FRAME);
}

/* The gate of an allocation of n bytes: 1 = nothing to say, the request is counted. hook path */
HB_INLINE int hb_alloc_gate(struct hb_tls *t, uint64_t n, const void *cfa) {
  uint64_t left = t->alloc_left;
  hb_saw_depth(t, cfa);
  if (HB_UNLIKELY(n >= left || hb_new_tick(t))) return 0;
  t->alloc_left = left - n;
  t->alloc_objects++;
  return 1;
}

/* After the real allocator gave p for n bytes on the long way: count, sample. hook path */
static HB_NOINLINE void hb_allocated(struct hb_tls *t, uint32_t hook, void *p, uint64_t n, const void *frame) {
  if (!p) return;
  if (!hb_thread_ready(t)) { /* not recorded: keep the gate shut for as long as that can be known */
    t->tick = hb_load_relaxed(&hb.header->tick);
    if (n >= t->alloc_left) t->alloc_left = t->alloc_given = UINT64_MAX / 4;
    return;
  }
  t->alloc_objects++;
  if (n < t->alloc_left) {
    t->alloc_left -= n;
    hb_sample_hook(t, HB_SAMPLE_SYNC, hook, 0, frame);
    return;
  }
  uint64_t asked = t->alloc_given - t->alloc_left + n; /* in all, this one included */
  uint64_t period = t->alloc_period;
  hb_alloc_adapt(t);
  t->alloc_left = hb_alloc_gap(t);
  t->alloc_given = asked + t->alloc_left;
  if (hb.features & HB_FEATURE_ALLOC && hb_load_relaxed(&hb.header->recording))
    hb_emit_alloc(t, hook, (uint64_t)p, n, period, frame);
}

/* ---- wrappers ---- */

typedef void *(*hb_malloc_fn)(size_t);
typedef void *(*hb_calloc_fn)(size_t, size_t);
typedef void *(*hb_realloc_fn)(void *, size_t);
typedef void *(*hb_align_fn)(size_t, size_t);

static HB_GATE HB_NOINLINE void *hb_malloc_long(size_t n) {
  hb_malloc_fn real = HB_REAL(hb_malloc_fn, malloc);
  if (!real) return (void *)(hb_fail(HB_ENOSYS) & 0);
  void *p = real(n);
  hb_allocated(hb_self(), HB_HOOK_malloc, p, n, HB_FRAME);
  return p;
}

HB_EXPORT HB_GATE void *malloc(size_t n) {
  if (HB_LIKELY(hb_alloc_gate(hb_self(), n, HB_CFA) && hb_real.malloc)) return ((hb_malloc_fn)hb_real.malloc)(n);
  return hb_malloc_long(n);
}

static HB_GATE HB_NOINLINE void *hb_calloc_long(size_t a, size_t b) {
  hb_calloc_fn real = HB_REAL(hb_calloc_fn, calloc);
  if (!real) return (void *)(hb_fail(HB_ENOSYS) & 0);
  void *p = real(a, b);
  hb_allocated(hb_self(), HB_HOOK_calloc, p, a * b, HB_FRAME); /* no overflow: p would be NULL */
  return p;
}

HB_EXPORT HB_GATE void *calloc(size_t a, size_t b) {
  size_t n;
  if (HB_LIKELY(!__builtin_mul_overflow(a, b, &n) && hb_alloc_gate(hb_self(), n, HB_CFA) && hb_real.calloc))
    return ((hb_calloc_fn)hb_real.calloc)(a, b);
  return hb_calloc_long(a, b);
}

static HB_GATE HB_NOINLINE void hb_free_long(void *p) {
  struct hb_tls *t = hb_self();
  typedef void (*fn)(void *);
  fn real = HB_REAL(fn, free);
  if (hb_alloc_untrack((uint64_t)p)) hb_emit_free(t, (uint64_t)p);
  if (real) real(p);
}

HB_EXPORT HB_GATE void free(void *p) {
  hb_self()->free_objects += p != NULL;
  if (HB_LIKELY(!hb_maybe_sampled(p) && hb_real.free)) {
    ((void (*)(void *))hb_real.free)(p);
    return;
  }
  hb_free_long(p);
}

/* realloc and reallocarray: n bytes in all. The old block is said to be free before the call, in which another thread may get its
 * address and say so. If nothing came of it the block lives on unseen, and is counted; what cannot succeed is told by its
 * size. hook path */
#define HB_REALLOC_LONG(hook, old, n, call)                                                                        \
  struct hb_tls *t = hb_self();                                                                                    \
  int said = (old) && (n) <= PTRDIFF_MAX && hb_maybe_sampled(old) && hb_alloc_untrack((uint64_t)(old));            \
  if (said) hb_emit_free(t, (uint64_t)(old));                                                                      \
  void *p = (call);                                                                                                \
  if (HB_UNLIKELY(said && !p && (n))) HB_COUNT(alloc_table_full);                                                  \
  if ((old) && (p || (n) == 0)) t->free_objects++;                                      \
  hb_allocated(t, hook, p, n, HB_FRAME);                                                \
  return p

static HB_GATE HB_NOINLINE void *hb_realloc_long(void *old, size_t n) {
  hb_realloc_fn real = HB_REAL(hb_realloc_fn, realloc);
  if (!real) return (void *)(hb_fail(HB_ENOSYS) & 0);
  HB_REALLOC_LONG(HB_HOOK_realloc, old, n, real(old, n));
}

HB_EXPORT HB_GATE void *realloc(void *old, size_t n) {
  struct hb_tls *t = hb_self();
  if (HB_LIKELY(n && !hb_maybe_sampled(old) && hb_real.realloc && hb_alloc_gate(t, n, HB_CFA))) {
    t->free_objects += old != NULL;
    return ((hb_realloc_fn)hb_real.realloc)(old, n);
  }
  return hb_realloc_long(old, n);
}

HB_EXPORT HB_GATE HB_NOINLINE void *reallocarray(void *old, size_t a, size_t b) {
  typedef void *(*fn)(void *, size_t, size_t);
  fn real = HB_REAL(fn, reallocarray);
  size_t n;
  if (!real) return (void *)(hb_fail(HB_ENOSYS) & 0);
  if (__builtin_mul_overflow(a, b, &n)) return real(old, a, b);
  HB_REALLOC_LONG(HB_HOOK_reallocarray, old, n, real(old, a, b));
}

/* Rarer members: no fast path of their own beyond the gate. musl's call aligned_alloc, by its name: whoever has been counted in there is not counted again. */
#define HB_ALIGNED(symbol)                                            \
  HB_EXPORT HB_GATE HB_NOINLINE void *symbol(size_t align, size_t n) {        \
    hb_align_fn real = HB_REAL(hb_align_fn, symbol);                  \
    struct hb_tls *t = hb_self();                                     \
    if (!real) return (void *)(hb_fail(HB_ENOSYS) & 0);               \
    if (hb_alloc_gate(t, n, HB_CFA)) return real(align, n);           \
    uint64_t objects = t->alloc_objects;                              \
    void *p = real(align, n);                                         \
    if (t->alloc_objects == objects) hb_allocated(t, HB_HOOK_##symbol, p, n, HB_FRAME); \
    return p;                                                         \
  }
HB_ALIGNED(aligned_alloc)
HB_ALIGNED(memalign)

#define HB_PAGED(symbol)                                              \
  HB_EXPORT HB_GATE HB_NOINLINE void *symbol(size_t n) {                      \
    hb_malloc_fn real = HB_REAL(hb_malloc_fn, symbol);                \
    struct hb_tls *t = hb_self();                                     \
    if (!real) return (void *)(hb_fail(HB_ENOSYS) & 0);               \
    if (hb_alloc_gate(t, n, HB_CFA)) return real(n);                  \
    uint64_t objects = t->alloc_objects;                              \
    void *p = real(n);                                                \
    if (t->alloc_objects == objects) hb_allocated(t, HB_HOOK_##symbol, p, n, HB_FRAME); \
    return p;                                                         \
  }
HB_PAGED(valloc)
HB_PAGED(pvalloc)

HB_EXPORT HB_GATE HB_NOINLINE int posix_memalign(void **out, size_t align, size_t n) {
  typedef int (*fn)(void **, size_t, size_t);
  fn real = HB_REAL(fn, posix_memalign);
  struct hb_tls *t = hb_self();
  if (!real) return HB_ENOSYS;
  if (hb_alloc_gate(t, n, HB_CFA)) return real(out, align, n);
  uint64_t objects = t->alloc_objects;
  int r = real(out, align, n);
  if (r == 0 && t->alloc_objects == objects) hb_allocated(t, HB_HOOK_posix_memalign, *out, n, HB_FRAME);
  return r;
}

#endif
