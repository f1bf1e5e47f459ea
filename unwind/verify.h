/* verify.h: the same walk, but only until it meets the thread's last stack; the rest is proved, not walked.
 *
 * A step of a walk is a function of the frame's registers (pc, sp, bp), of the rules in force, and of the stack
 * words that it reads: the return address, sometimes bp, sometimes one more. The memory holds a stack with those
 * registers and the addresses of those words. Where a new walk arrives at registers that a remembered frame had,
 * under the same generation of rules, and every word that led on from there still holds what it held, the rest of
 * the new walk is the rest of the remembered one. Checking costs two independent loads and compares a frame and
 * no look-ups. (Stopping at a frame that merely looks the same, without checking, is wrong for up to three
 * stacks in four.)
 *
 * A step that went by anything else (a signal frame, other registers, a guess at an interrupted instruction,
 * frames left out) proves nothing: what is remembered on the leaf's side of it is never joined (`solid`).
 *
 * How it replaces hb_local.last and delta.h's comparison:
 *   hb_local.last     becomes  struct hb_memory    root first, 32 bytes a frame; {pc, at} lead each as in hb_frame
 *   hb_local.scratch  becomes  struct hb_taken     leaf first
 *   hb_walk_hook/…    become   hb_cursor_hook/…, then hb_walk_verify: v.n frames in scratch, leaf first, stand on
 *                              v.joined frames of the memory
 *   hb_delta          starts with same = v.joined instead of 0; takes back frames while same > 0 and
 *                     f[same - 1].at < popped (slots grow towards the root, so what remains was not popped); if it
 *                     took none back, goes on comparing f[same] with scratch[n - 1 - (same - joined)], since
 *                     a frame can be the same invocation while bp differs; then calls hb_memory_keep, which
 *                     is the copy that hb_delta makes now.
 * Stacks deeper than HB_MAX_FRAMES are not remembered: hb_walk_verify says HB_WALK_LIMIT with v.n == HB_MAX_FRAMES,
 * and the caller walks again with hb_walk_table, which keeps both ends.
 *
 * Nested walks (a handler that interrupts one) and fork children may not use the memory of a walk under way: the
 * caller's busy flag. An update that is abandoned half-way (siglongjmp out of a handler above it) leaves an
 * empty memory. */
#ifndef HB_VERIFY_H
#define HB_VERIFY_H

#include "unwind/table.h"

struct hb_kept {
  uint64_t pc;    /* HB_PC_* in the top four bits */
  uint64_t at;    /* slot of the return address; the frame's sp is at + 8, but for interrupted frames */
  uint64_t bp;
  uint64_t reads; /* in the memory: how many words the steps from the root's frame up to this one's read, beside
                     return addresses. In scratch: those of this frame's step alone, HB_NOT_PLAIN when it proves
                     nothing */
};
_Static_assert(sizeof(struct hb_kept) == 32, "half a cache line a frame");
_Static_assert(offsetof(struct hb_kept, pc) == offsetof(struct hb_frame, pc) &&
                   offsetof(struct hb_kept, at) == offsetof(struct hb_frame, at),
               "reads like a frame");
#define HB_NOT_PLAIN 3u
#define HB_MAX_READS HB_MAX_FRAMES /* few frames read a word beside the return address; where they run out, nothing is proved */

struct hb_read { /* a word of the stack that a step went by, and what it held */
  uint64_t at, value;
};

/* Scratch space of a walk. */
struct hb_taken {
  struct hb_kept f[HB_MAX_FRAMES]; /* leaf first */
  uint64_t pad[16]; /* stack.h says why */
  struct hb_read read[HB_MAX_READS + 2];
};

/* A thread's last stack. */
struct hb_memory {
  uint64_t generation; /* of the rules */
  uint32_t depth;      /* frames; 0: nothing is remembered */
  uint32_t solid;      /* of them, from the root, those that can be joined */
  uint32_t guessed;    /* the frame nearest to the root that was found by frame pointer or guess; depth: none */
  uint32_t end_guessed; /* the walk's end was a frame pointer of zero */
  uint64_t hi;         /* end of the root's stack */
  struct hb_read end;  /* the word that ended the walk; at == &value: none did */
  struct hb_kept f[HB_MAX_FRAMES]; /* root first */
  uint64_t pad[10];
  struct hb_read read[HB_MAX_READS]; /* by frame, root first */
};

struct hb_verified {
  uint32_t joined; /* frames of the memory, from the root, that the stack begins with */
  uint32_t n;      /* frames in scratch */
  uint32_t reads;  /* words in scratch */
  uint32_t odd;    /* some step was not by hb_step_fast */
  enum hb_walk_end end; /* HB_WALK_JOINED, or why the whole walk ended */
};

#define HB_PC_BITS (((uint64_t)1 << HB_PC_SHIFT) - 1)

HB_INLINE uint64_t hb_changed(const struct hb_read *r) { return *(const uint64_t *)r->at ^ r->value; }
/* Where calls leave no return address at `at`, the word that it was saved in is among those read. */
HB_INLINE uint64_t hb_returns_elsewhere(const struct hb_kept *f) {
  if (HB_RA_SAVED) return 0;
  return *(const uint64_t *)f->at ^ (f->pc & HB_PC_BITS);
}

/* Something that leads from frame j to the root differs: the frame nearest to the root that cannot be joined. */
static HB_NOINLINE uint32_t hb_memory_differs(const struct hb_memory *m, uint32_t j) {
  if (hb_changed(&m->end)) return 0;
  uint32_t r = 0;
  for (uint32_t i = 0; i < j; i++) {
    for (; r < m->f[i].reads; r++)
      if (hb_changed(&m->read[r])) return i;
    if (hb_returns_elsewhere(&m->f[i])) return i + 1; /* the step from i + 1 read it */
  }
  return j;
}

/* Do the words that led from frame j to the end still hold what they held? signal-safe */
HB_INLINE int hb_memory_holds(const struct hb_memory *m, uint32_t j) {
  uint64_t differ = hb_changed(&m->end), differ2 = 0;
  const struct hb_read *r = m->read, *r_end = r + m->f[j].reads;
  for (; r < r_end; r++) differ |= hb_changed(r);
  const struct hb_kept *f = m->f, *f_end = f + j;
  for (; f + 1 < f_end; f += 2) {
    differ |= hb_returns_elsewhere(f);
    differ2 |= hb_returns_elsewhere(f + 1);
  }
  if (f < f_end) differ |= hb_returns_elsewhere(f);
  return !(differ | differ2);
}

/* Is the frame at these registers one of the memory's, with all that leads on from it as it was? *reach, the frames that can still
 * be joined, becomes the frame's number + 1. signal-safe */
HB_INLINE int hb_memory_meets(const struct hb_memory *m, uint32_t *reach, uintptr_t pc, uintptr_t bp, uintptr_t at, uintptr_t hi) {
  uint32_t n = *reach;
  while (n && m->f[n - 1].at < at) n--;
  *reach = n;
  if (!n) return 0;
  const struct hb_kept *f = &m->f[n - 1];
  if (f->at != at || (f->pc & HB_PC_BITS) != pc || f->pc >> HB_PC_SHIFT == HB_PC_EXACT || f->bp != bp || m->hi != hi) return 0;
  if (HB_LIKELY(hb_memory_holds(m, n - 1))) return 1;
  *reach = hb_memory_differs(m, n - 1);
  return 0;
}

/* Walk from the cursor's frame, which is added as the leaf, into scratch. The memory does not change until
 * hb_memory_keep. signal-safe */
static void hb_walk_verify(const struct hb_unwind *u, struct hb_cursor *c, const struct hb_memory *m,
                           struct hb_taken *scratch, struct hb_walked *w, struct hb_verified *v) {
  struct hb_rules *rules = u->rules;
  struct hb_range self = u->self;
  enum hb_walk_end end = HB_WALK_LIMIT;
  if (rules) hb_rules_renew(rules, u->modules);
  uint64_t generation = u->modules ? u->modules->generation : 0;
  /* what can still be joined: frames [0, reach) */
  uint32_t reach = m->generation == generation && m->solid <= m->depth ? m->solid : 0;
  struct hb_kept *k = scratch->f, *const k_end = k + HB_MAX_FRAMES;
  struct hb_read *read = scratch->read, *const full = read + HB_MAX_READS;
  uintptr_t pc = c->pc, sp = c->sp, bp = c->bp, hi = c->hi, at = c->at, slot;
  uint32_t exact = c->exact, odd = 0, ended = 0;
  uint64_t how = c->how; /* 64 bits: gcc would store 32 of them and load 64, which waits for the store */
  v->joined = 0;
  for (;; k++) {
    if (reach && !exact && hb_memory_meets(m, &reach, pc, bp, at, hi)) {
      v->joined = reach;
      end = HB_WALK_JOINED;
      break;
    }
    if (HB_UNLIKELY(k == k_end)) break;
    k->pc = hb_pc(how, pc);
    k->at = at;
    k->bp = bp;
    if (HB_LIKELY(!exact && !(sp & 7))) {
      /* Usual steps, one after the other, until a frame looks like the remembered one at its place; without calls, so that all of it
       * stays in registers. */
      const struct hb_kept *seen = m->f + reach;
      uintptr_t place = reach ? (--seen)->at : UINTPTR_MAX;
      enum { SLOW, LEARN, ARRIVED } then;
      uint64_t word;
      for (;;) {
        then = LEARN;
        if (HB_UNLIKELY(!hb_rule_known(rules, pc, &word))) break;
      step:
        then = SLOW;
        uintptr_t to_pc = pc, to_sp = sp, to_bp = bp;
        if (HB_UNLIKELY(!hb_step_fast(word, &to_pc, &to_sp, &to_bp, hi, &slot) || hb_in(self, to_pc) || read >= full)) break;
        read->at = slot;
        read->value = to_bp;
        if (HB_RA_SAVED) read[1] = (struct hb_read){slot + 8, *(const uint64_t *)(slot + 8)};
        k->reads = HB_RA_SAVED ? 2 : slot != 0;
        read += k->reads;
        pc = to_pc, sp = to_sp, bp = to_bp, at = sp - 8;
        then = ARRIVED;
        while (at > place) place = seen > m->f ? (--seen)->at : UINTPTR_MAX;
        if (at == place && seen->bp == bp && (seen->pc & HB_PC_BITS) == pc) break;
        if (HB_UNLIKELY(k + 1 == k_end)) break;
        k++;
        k->pc = hb_pc(HB_PC_TABLE, pc);
        k->at = at;
        k->bp = bp;
      }
      if (HB_UNLIKELY(then == LEARN)) {
        word = hb_rule_learn(u, pc);
        goto step;
      }
      if (HB_LIKELY(then == ARRIVED)) {
        how = HB_PC_TABLE;
        continue;
      }
    }
    uint32_t reads = exact ? HB_NOT_PLAIN : 0;
    odd = 1;
    for (;;) {
      if (!exact && !(sp & 7) && hb_step_fast(hb_rule_word(u, pc), &pc, &sp, &bp, hi, &slot)) {
        how = HB_PC_TABLE, at = sp - 8;
        if (slot && read >= full) reads = HB_NOT_PLAIN;
        if (!reads && slot) {
          read[reads++] = (struct hb_read){slot, bp};
          if (HB_RA_SAVED) read[reads++] = (struct hb_read){slot + 8, *(const uint64_t *)(slot + 8)};
        }
      } else {
        c->pc = pc, c->sp = sp, c->bp = bp, c->exact = exact;
        c->end_at = 0;
        enum hb_walk_end stepped = hb_step_slow(u, c);
        if (stepped != HB_WALK_ON) {
          end = stepped;
          ended = 1;
          if (end != HB_WALK_OUTERMOST || c->extra || c->bp_slot) reads = HB_NOT_PLAIN;
          break;
        }
        if (!c->plain) reads = HB_NOT_PLAIN;
        pc = c->pc, sp = c->sp, bp = c->bp, hi = c->hi, exact = c->exact, how = c->how, at = c->at;
        if (HB_UNLIKELY(read >= full) && (c->bp_slot || c->extra)) reads = HB_NOT_PLAIN;
        if (!reads && c->bp_slot) read[reads++] = (struct hb_read){c->bp_slot, bp};
        if (reads != HB_NOT_PLAIN && c->extra) read[reads++] = (struct hb_read){c->extra, *(const uint64_t *)c->extra};
      }
      if (HB_LIKELY(!hb_in(self, pc))) {
        if (reads != HB_NOT_PLAIN) read += reads;
        break;
      }
      if (hb_in(u->stop, pc)) {
        if (reads != HB_NOT_PLAIN) read += reads;
        end = HB_WALK_STOP;
        ended = 1;
        c->end_at = at;
        break;
      }
      reads = HB_NOT_PLAIN; /* a frame is left out: this step is no step */
    }
    k->reads = reads;
    if (ended) {
      k++;
      break;
    }
  }
  c->pc = pc, c->sp = sp, c->bp = bp, c->exact = exact, c->hi = hi, c->how = (uint32_t)how;
  v->odd = odd;
  v->n = (uint32_t)(k - scratch->f);
  v->reads = (uint32_t)(read - scratch->read);
  w->n = v->joined + v->n;
  if (HB_LIKELY(end == HB_WALK_JOINED)) {
    if (c->guessed || m->end_guessed || m->guessed < v->joined - 1) w->flags |= HB_STACK_GUESSED;
  } else {
    hb_walk_ended(c, end, w);
  }
  v->end = HB_LIKELY(w->n <= HB_MAX_FRAMES) ? end : HB_WALK_LIMIT;
}

/* Make what hb_walk_verify found the memory. `c` as the walk left it. signal-safe */
static void hb_memory_keep(struct hb_memory *m, const struct hb_unwind *u, const struct hb_cursor *c,
                           const struct hb_taken *scratch, const struct hb_verified *v) {
  uint32_t base = v->joined, depth = base + v->n, solid = base, guessed = m->guessed;
  m->depth = 0;
  hb_compiler_barrier();
  if (v->end == HB_WALK_LIMIT) return;
  uint64_t reads = 0;
  if (HB_LIKELY(base != 0)) {
    struct hb_kept *f = &m->f[base - 1];
    reads = f->reads;
    f->pc = hb_pc(c->how, (uintptr_t)(f->pc & HB_PC_BITS)); /* found in another way this time, perhaps */
    if (guessed >= base - 1) guessed = c->how == HB_PC_FP || c->how == HB_PC_GUESS ? base - 1 : depth;
  } else {
    m->generation = u->modules ? u->modules->generation : 0;
    m->hi = c->hi;
    guessed = depth;
    m->end_guessed = c->guessed == 2;
    m->end = (struct hb_read){(uint64_t)(uintptr_t)&m->end.value, 0};
    if (c->end_at) m->end = (struct hb_read){c->end_at, *(const uint64_t *)c->end_at}; /* the walk read it there */
  }
  const struct hb_read *read = scratch->read + v->reads;
  if (HB_LIKELY(base && !v->odd && reads + v->reads <= HB_MAX_READS)) { /* the same in short */
    struct hb_kept *f = &m->f[base];
    for (const struct hb_kept *s = scratch->f + v->n; s-- > scratch->f; f++) {
      reads += s->reads;
      *f = (struct hb_kept){s->pc, s->at, s->bp, reads};
    }
    struct hb_read *to = &m->read[reads];
    for (const struct hb_read *r = scratch->read; r < read; r++) *--to = *r;
    m->guessed = guessed;
    m->solid = depth;
    hb_compiler_barrier();
    m->depth = depth;
    return;
  }
  int fits = 1; /* there was room for every word so far */
  for (uint32_t i = base; i < depth; i++) {
    const struct hb_kept *s = &scratch->f[depth - 1 - i];
    struct hb_kept *f = &m->f[i];
    uint32_t how = (uint32_t)(s->pc >> HB_PC_SHIFT);
    if ((how == HB_PC_FP || how == HB_PC_GUESS) && guessed > i) guessed = i;
    if (s->reads != HB_NOT_PLAIN) {
      /* the step that ended the walk must be one that proves something, too */
      int ended = i || v->end == HB_WALK_OUTERMOST || v->end == HB_WALK_STOP;
      read -= s->reads;
      if (HB_UNLIKELY(reads + s->reads > HB_MAX_READS)) fits = 0;
      if (solid == i && ended && fits) solid = i + 1;
      for (uint64_t k = s->reads; k && fits; k--) m->read[reads++] = read[k - 1];
    }
    f->pc = s->pc;
    f->at = s->at;
    f->bp = s->bp;
    f->reads = reads;
  }
  m->guessed = guessed;
  m->solid = solid;
  hb_compiler_barrier();
  m->depth = depth;
}

#endif
