/* stack.h: the frames of Python that the calling thread is in, from a hook or a signal handler.
 *
 * Everything is read from the interpreter's own memory at the offsets that the recorder published (struct hb_python),
 * and nothing of it is believed: a word is read only if it is aligned and its page can be read, which the kernel is
 * asked for each page of each walk; chains are followed for a bounded number of steps. Memory that holds anything
 * else than frames gives wrong frames, counted or not, never a fault. What another thread unmaps between question and
 * reading is the one exception; a thread's own frames, and the code objects that they own, are unmapped by nobody
 * else.
 *
 * Frames come leaf first. Those that one evaluation loop runs are a run, and the run has an anchor: an address inside
 * the loop's native frame (from 3.10 on), by which names.h finds that frame. */
#ifndef HB_PYTHON_STACK_H
#define HB_PYTHON_STACK_H

#include "agent/real.h"
#include "unwind/stack.h"

#define HB_PY_STEPS 4096u /* longest chain of frames followed */
#define HB_PY_LEAF_FRAMES (HB_PY_FRAMES - HB_PY_ROOT_FRAMES - 1)
#define HB_PY_PAGES 16u

/* Which pages can be read, as far as this walk has asked. */
struct hb_py_pages {
  uintptr_t lo, hi; /* of the thread's stack from the walk's own frame on */
  uintptr_t last;
  uint32_t n;
  uintptr_t page[HB_PY_PAGES];
};

static HB_NOINLINE int hb_py_ask(struct hb_py_pages *p, uintptr_t page) {
  for (uint32_t i = 0; i < HB_PY_PAGES && i < p->n; i++)
    if (p->page[i] == page) {
      p->last = page;
      return 1;
    }
  if (page < 0x10000 || page >> HB_VA_BITS || !hb_readable8(page)) return 0;
  p->page[p->n++ % HB_PY_PAGES] = page;
  p->last = page;
  return 1;
}

/* May the word at `at` be read? signal-safe */
HB_INLINE int hb_py_can(struct hb_py_pages *p, uintptr_t at) {
  if (HB_UNLIKELY(at & 7)) return 0;
  if (at - p->lo < p->hi - p->lo || (at & ~(uintptr_t)4095) == p->last) return 1;
  return hb_py_ask(p, at & ~(uintptr_t)4095);
}

HB_INLINE int hb_py_word(struct hb_py_pages *p, uintptr_t at, uint64_t *v) {
  if (HB_UNLIKELY(!hb_py_can(p, at))) return 0;
  *v = *(const volatile uint64_t *)at;
  return 1;
}

/* A smaller field, which lies inside an aligned word. */
HB_INLINE int hb_py_field(struct hb_py_pages *p, uintptr_t at, uint32_t bytes, uint64_t *v) {
  uint32_t shift = 8 * ((uint32_t)at & 7);
  if (HB_UNLIKELY(!hb_py_word(p, at & ~(uintptr_t)7, v))) return 0;
  *v = *v >> shift & ((1ull << 8 * bytes) - 1);
  return 1;
}

/* Copy memory that may not be there; 0: it is not. signal-safe */
static int hb_py_copy(struct hb_py_pages *p, void *to, uintptr_t from, uint32_t n) {
  char *d = to;
  if (from + n < from) return 0;
  for (uint32_t i = 0; i < n; i++) {
    uintptr_t at = from + i;
    if ((i == 0 || !(at & 4095)) && !hb_py_can(p, at & ~(uintptr_t)7)) return 0;
    d[i] = *(const volatile char *)at;
  }
  return 1;
}

static void hb_py_pages_begin(struct hb_py_pages *p, const struct hb_tls *t) {
  uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
  p->lo = sp;
  p->hi = t->stack_hi > sp && sp >= t->stack_lo ? t->stack_hi & ~(uintptr_t)7 : sp;
  p->last = 0;
  p->n = 0;
}

/* The thread state of the calling thread; 0: it has none. The C library's function only reads the thread's own memory.
 * signal-safe */
static uintptr_t hb_py_thread(const struct hb_python *o, struct hb_py_pages *p) {
  typedef void *(*fn)(uint32_t);
  uint64_t key;
  if (!hb_real.pthread_getspecific || !o->key || !hb_py_word(p, o->key & ~(uint64_t)7, &key)) return 0;
  if (o->key & 4) { /* {set, key} in two words */
    uint64_t high;
    if (!hb_py_word(p, (o->key & ~(uint64_t)7) + 8, &high)) return 0;
    key = key >> 32 | high << 32;
  }
  if ((uint32_t)key != 1 || key >> 32 >= 1024) return 0;
  return (uintptr_t)((fn)hb_real.pthread_getspecific)((uint32_t)(key >> 32));
}

static void hb_py_add(struct hb_py_local *s, uint64_t code, uint64_t instr, uint64_t at) {
  uint32_t i = s->total++;
  if (HB_UNLIKELY(i >= HB_PY_FRAMES)) i = HB_PY_LEAF_FRAMES + (i - HB_PY_LEAF_FRAMES) % (HB_PY_ROOT_FRAMES + 1);
  s->f[i] = (struct hb_py_frame){code, instr, at, 0};
}

/* All frames from number `first` on, which are one run, have this anchor. Those that were left out are passed over. */
static void hb_py_run(struct hb_py_local *s, uint32_t first, uint64_t anchor) {
  uint32_t i = s->total - first > HB_PY_ROOT_FRAMES + 1 && s->total > HB_PY_FRAMES ?
      s->total - HB_PY_ROOT_FRAMES - 1 : first;
  if (i != first)
    for (uint32_t k = first; k < HB_PY_LEAF_FRAMES; k++) s->f[k].anchor = anchor;
  for (; i < s->total; i++)
    s->f[i < HB_PY_FRAMES ?
        i : HB_PY_LEAF_FRAMES + (i - HB_PY_LEAF_FRAMES) % (HB_PY_ROOT_FRAMES + 1)].anchor = anchor;
}

static void hb_py_reverse(struct hb_py_frame *f, uint32_t n) {
  for (uint32_t i = 0; i < n / 2; i++) {
    struct hb_py_frame x = f[i];
    f[i] = f[n - 1 - i];
    f[n - 1 - i] = x;
  }
}

/* As hb_collect_end. */
static void hb_py_end(struct hb_py_local *s) {
  s->n = s->total;
  if (HB_LIKELY(s->total <= HB_PY_FRAMES)) return;
  struct hb_py_frame *ring = s->f + HB_PY_LEAF_FRAMES;
  uint32_t len = HB_PY_ROOT_FRAMES + 1, next = (s->total - HB_PY_LEAF_FRAMES) % len;
  hb_py_reverse(ring, next);
  hb_py_reverse(ring + next, len - next);
  hb_py_reverse(ring, len);
  ring[0].at = 0;
  ring[0].code = 0;
  ring[0].instr = s->total - HB_PY_LEAF_FRAMES - HB_PY_ROOT_FRAMES;
  s->n = HB_PY_FRAMES;
}

/* 3.8 to 3.10: each frame is an object and has an evaluation loop of its own. */
static void hb_py_walk_objects(const struct hb_python *o, struct hb_py_pages *p, uintptr_t ts,
    struct hb_py_local *s) {
  uint64_t f, cframe = 0, code, last;
  if (!hb_py_word(p, ts + o->ts_frame, &f) || (o->ts_cframe && !hb_py_word(p, ts + o->ts_cframe, &cframe))) {
    s->bad = 1;
    return;
  }
  for (uint32_t step = 0; f; step++) {
    if (step == HB_PY_STEPS || !hb_py_word(p, f + o->frame_code, &code) || !hb_py_field(p, f + o->frame_instr, 4,
        &last)) {
      s->bad = 1;
      return;
    }
    hb_py_add(s, code, (uint64_t)(int64_t)(int32_t)last, f);
    hb_py_run(s, s->total - 1, cframe);
    if (cframe && !hb_py_word(p, cframe + o->cframe_previous, &cframe)) cframe = 0;
    if (!hb_py_word(p, f + o->frame_previous, &f)) {
      s->bad = 1;
      return;
    }
  }
}

/* From 3.11 on: frames lie in the thread's own memory, and one loop runs several. */
static void hb_py_walk_frames(const struct hb_python *o, struct hb_py_pages *p, uintptr_t ts, struct hb_py_local *s) {
  uint64_t f = 0, cframe = 0, code, instr, owner, entry = 0;
  uint32_t first = 0, step = 0;
  int ok = hb_py_word(p, ts + o->ts_frame, &f);
  if (ok && o->version < 0x30d && f) {
    cframe = f;
    ok = hb_py_word(p, cframe + o->cframe_frame, &f);
  }
  for (; ok && f; step++) {
    if (step == HB_PY_STEPS || !hb_py_field(p, f + o->frame_owner, 1, &owner)) break;
    if (owner >= 3 && o->version >= 0x30c) { /* the loop's own, on the native stack */
      hb_py_run(s, first, f);
      first = s->total;
    } else {
      if (!hb_py_word(p, f + o->frame_code, &code) || !hb_py_word(p, f + o->frame_instr, &instr) ||
          (o->frame_entry && !hb_py_field(p, f + o->frame_entry, 1, &entry)))
        break;
      hb_py_add(s, code & ~(uint64_t)7, instr, f);
      if (entry) { /* 3.11 */
        hb_py_run(s, first, cframe);
        first = s->total;
        if (cframe && !hb_py_word(p, cframe + o->cframe_previous, &cframe)) cframe = 0;
      }
    }
    ok = hb_py_word(p, f + o->frame_previous, &f);
  }
  if (!ok || f) s->bad = 1;
}

/* signal-safe, under t->busy */
static void hb_py_walk(const struct hb_python *o, struct hb_py_pages *p, uintptr_t ts, struct hb_py_local *s) {
  s->n = s->total = s->bad = 0;
  if (o->version < 0x30b) hb_py_walk_objects(o, p, ts, s);
  else hb_py_walk_frames(o, p, ts, s);
  hb_py_end(s);
}

#endif
