/* table.h: walks a stack by compiled unwind tables (modules.h), and by frame pointers where there are none.
 *
 * How a frame's caller is found, best first; each frame says which (HB_PC_*):
 *   table   its pc has a row: exact, prologues and epilogues included
 *   guess   only the leaf: no row, but the instruction or the word at SP tells where the return address is
 *   fp      no row (JIT, Go, hand-written assembly): the frame pointer, if it looks like one
 * A rule is looked up at pc - 1 for return addresses, since a call may be its function's last instruction, and at
 * the pc itself for the interrupted instruction: the leaf of an asynchronous sample, and the frame under a signal.
 *
 * A walk reads nothing but
 *   - the stack: [sp, hi), aligned, strictly upwards, plus the red zone below an interrupted frame, down to lo;
 *     only a signal frame leads to another stack: one of those that the caller names, or pages that the kernel says can
 *     be read;
 *   - the region of tables, whose every index is checked;
 *   - code without a row around a leaf or a return address, after asking the kernel whether it can be read.
 *
 * The rules of the pcs seen last are kept in one word each (struct hb_rules), written and read whole, so that a
 * signal handler that interrupts a walk finds no half of one. Still at most one walk of a thread may use the
 * thread's hb_rules: a nested one passes NULL. */
#ifndef HB_TABLE_H
#define HB_TABLE_H

#include "unwind/modules.h"
#if defined(__x86_64__)
#include "unwind/table_amd64.h"
#elif defined(__aarch64__)
#include "unwind/table_arm64.h"
#else
#error "no unwind/table_*.h for this architecture yet"
#endif
#include "unwind/walk.h"

/* ---- the region, as mapped by this process ---- */

struct hb_tables {
  const char *base; /* NULL: there is none */
  uint64_t bytes;
  _Atomic(const struct hb_modules *) modules; /* adopted last; NULL: none yet */
};

static int hb_table_part(uint64_t off, uint64_t size, uint64_t n, uint64_t bytes) {
  return off >= sizeof(struct hb_table_head) && !(off & 1) && off <= bytes && n <= (bytes - off) / size;
}

/* Does the table's header fit together, and into `room` bytes? signal-safe */
static int hb_table_check(const struct hb_table_head *h, uint64_t room) {
  if (room < sizeof *h || h->magic != HB_TABLE_MAGIC || h->version != HB_TABLES_VERSION) return 0;
  if (h->machine != HB_ELF_MACHINE || h->bytes > room || h->text_hi <= h->text_lo) return 0;
  return (h->text_hi - h->text_lo - 1) >> HB_BUCKET_BITS == (uint64_t)h->buckets - 1 && !(h->index_off & 3) &&
         !(h->rules_off & 3) && hb_table_part(h->index_off, 4, (uint64_t)h->buckets + 1, h->bytes) &&
         hb_table_part(h->pcs_off, 2, h->rows, h->bytes) && hb_table_part(h->ids_off, 1, h->rows, h->bytes) &&
         hb_table_part(h->rules_off, sizeof(struct hb_rule), h->rules, h->bytes) && !(h->words_off & 3) &&
         hb_table_part(h->words_off, 4, h->rules, h->bytes) && !(h->far_off & 3) &&
         hb_table_part(h->far_off, sizeof(struct hb_far), h->far, h->bytes);
}

static const struct hb_module *hb_module_list(const struct hb_modules *l) { return (const struct hb_module *)(l + 1); }

/* Is there a list at `off` that can be walked by? signal-safe */
static const struct hb_modules *hb_modules_check(const struct hb_tables *r, uint64_t off, uint32_t proc_uid) {
  if (off & 7 || off < sizeof(struct hb_region) || r->bytes < sizeof(struct hb_modules) ||
      off > r->bytes - sizeof(struct hb_modules))
    return NULL;
  const struct hb_modules *l = (const struct hb_modules *)(r->base + off);
  if (l->magic != HB_MODULES_MAGIC || l->proc_uid != proc_uid || !l->generation ||
      l->count > (r->bytes - off - sizeof *l) / sizeof(struct hb_module))
    return NULL;
  if (l->python && (l->python & 7 || l->python > r->bytes || r->bytes - l->python < sizeof(struct hb_python))) return NULL;
  const struct hb_module *m = hb_module_list(l);
  uint64_t last = 0;
  for (uint32_t i = 0; i < l->count; i++) {
    uint64_t t = m[i].table;
    if (m[i].lo < last || m[i].hi <= m[i].lo || m[i].hi >> HB_VA_BITS) return NULL;
    last = m[i].hi;
    if (t && (t & 7 || t > r->bytes || !hb_table_check((const struct hb_table_head *)(r->base + t), r->bytes - t)))
      return NULL;
  }
  return l;
}

/* Take over a region that was mapped read-only; 0 when it is not one of ours. init only */
static int hb_tables_open(struct hb_tables *r, const void *base, uint64_t bytes) {
  const struct hb_region *h = base;
  if (bytes < sizeof *h || h->magic != HB_REGION_MAGIC || h->version != HB_TABLES_VERSION ||
      h->machine != HB_ELF_MACHINE || h->header_bytes != sizeof *h || h->bytes > bytes ||
      h->slots > (h->bytes - sizeof *h) / sizeof(struct hb_region_slot))
    return 0;
  r->base = base;
  r->bytes = h->bytes;
  hb_store_relaxed(&r->modules, NULL);
  return 1;
}

/* The process's list now: the published one, checked when it is seen first. NULL: none was published; the last
 * good one when the published one is none. One load of shared memory when nothing is new. signal-safe */
static const struct hb_modules *hb_modules_adopt(struct hb_tables *r, uint32_t slot, uint32_t proc_uid) {
  const struct hb_modules *have = hb_load_relaxed(&r->modules);
  if (HB_UNLIKELY(!r->base || slot >= ((const struct hb_region *)r->base)->slots)) return NULL;
  const struct hb_region_slot *s = (const struct hb_region_slot *)(r->base + sizeof(struct hb_region)) + slot;
  uint64_t off = hb_load_acquire(&s->modules); /* pairs with the collector's release: the list is written */
  if (HB_LIKELY(have && (uint64_t)((const char *)have - r->base) == off)) return have;
  if (!off) return have; /* a fork child goes on with its parent's list until its own is there */
  const struct hb_modules *now = hb_modules_check(r, off, proc_uid);
  if (!now) return have;
  hb_store_relaxed(&r->modules, now);
  return now;
}

/* ---- rules ---- */

#define HB_RULE_BITS 10
#define HB_RULE_WORDS (1u << HB_RULE_BITS)

/* A thread's rules of late, 8 KiB: for return addresses only, by their low bits. word: the return address >> 10 in
 * the upper 37 bits, the packed rule for the address before it (HB_WORD_*) in the lower 27. */
struct hb_rules {
  uint64_t generation; /* of the list that they are from */
  const struct hb_module *last; /* the module that an address was looked up in last */
  _Atomic uint64_t word[HB_RULE_WORDS];
};

struct hb_range {
  uintptr_t lo, hi;
};

/* What a walk goes by. */
struct hb_unwind {
  const char *base;                 /* of the region */
  const struct hb_modules *modules; /* from hb_modules_adopt; NULL: frame pointers only */
  struct hb_rules *rules;           /* NULL: without memory of rules, for a nested walk */
  struct hb_range self;             /* our own text: walked through, left out */
  struct hb_range stop;             /* a part of it: a return address there means that the stack is complete */
  struct hb_range stacks[2];        /* where a signal frame may lead: the thread's stack, its alternate one */
};

enum hb_walk_end {
  HB_WALK_ON,        /* not ended */
  HB_WALK_OUTERMOST, /* complete: outermost by rule, by a zero return address or a zero frame pointer */
  HB_WALK_STOP,      /* complete: reached hb_unwind.stop */
  HB_WALK_BOUNDS,    /* cut: would have read outside the stack */
  HB_WALK_UNKNOWN,   /* cut: no row, and no frame pointer either */
  HB_WALK_OTHER,     /* cut: the rule cannot be expressed, or needs a register that is not known here */
  HB_WALK_LIMIT,     /* cut: too many frames */
  HB_WALK_JOINED,    /* verify.h only */
};

/* Where a walk is: a frame's own registers. */
struct hb_cursor {
  uintptr_t pc, sp, bp;
  uintptr_t lo, hi;     /* of the stack that sp lies on; hi == sp: nothing can be read */
  const uint64_t *file; /* register file of an interrupted frame (HB_FILE_*), NULL: only pc, sp and bp are known */
  uintptr_t at;         /* stack slot that pc was read from; sp for a leaf */
  uintptr_t bp_slot;    /* stack slot that bp was read from in the last step; 0: bp is as it was */
  uintptr_t extra;      /* another stack slot that the last step went by; 0: none */
  uint32_t exact;       /* pc is the instruction itself, not a return address */
  uint32_t how;         /* HB_PC_* */
  uint32_t plain;       /* the last step went by pc, sp, bp, the rule and the slots above only */
  uint32_t signals;     /* signal frames passed */
  uint32_t guessed;     /* 1: some step was by frame pointer or by a guess; 2: and so was the end */
  uintptr_t end_at;     /* stack slot whose word ended the walk; 0: none did */
};
#define HB_MAX_SIGNALS 16

HB_INLINE int hb_in(struct hb_range r, uintptr_t p) { return p - r.lo < r.hi - r.lo; }

/* Code may be there, as far as an address tells. */
HB_INLINE int hb_code_like(uintptr_t pc) { return pc - 0x10000 < ((uintptr_t)1 << HB_VA_BITS) - 0x10000; }

typedef int16_t hb_v8 __attribute__((vector_size(16)));
typedef int16_t hb_v8_at __attribute__((vector_size(16), aligned(2), may_alias));
typedef uint64_t hb_v8_sum __attribute__((vector_size(16)));

/* How many of n ascending numbers are <= low; `room` of them may be read. Eight at a time, since each step of a search by halves waits
 * for the one before. (In a table that nobody compiled they may not ascend: then it is any number up to n.) signal-safe */
HB_INLINE uint32_t hb_count_upto(const uint16_t *p, uint32_t n, uint32_t room, uint16_t low) {
  const uint16_t *q = p;
  while (n > 32 || (n > 1 && n + 7 > room)) {
    uint32_t half = n / 2;
    int above = q[half] > low;
    q = above ? q : q + half;
    room -= above ? 0 : half;
    n = above ? half : n - half;
  }
  if (HB_UNLIKELY(n + 7 > room)) return (uint32_t)(q - p) + (n && q[0] <= low);
  hb_v8 lane = {0, 1, 2, 3, 4, 5, 6, 7}, above = {0}, upto = above + (int16_t)low, end = above + (int16_t)n, count = {0};
  for (uint32_t i = 0; i < n; i += 8) {
    hb_v8 v = *(const hb_v8_at *)(q + i);
    above = (v > upto) | (lane >= end);
    count += above + 1;
    lane += 8;
  }
  hb_v8_sum sums = (hb_v8_sum)count;
  return (uint32_t)(q - p) + (uint32_t)((sums[0] + sums[1]) * 0x0001000100010001ull >> 48);
}

/* The number of the rule of a row whose rule is not among the first. signal-safe */
static HB_NOINLINE uint32_t hb_table_far(const struct hb_table_head *h, uint32_t row) {
  const struct hb_far *f = (const struct hb_far *)((const char *)h + h->far_off);
  uint32_t n = h->far;
  while (n > 1) {
    uint32_t half = n / 2;
    f = f[half].row <= row ? f + half : f;
    n -= half;
  }
  return n && f->row == row ? f->rule : UINT32_MAX;
}

/* The rule of an ELF virtual address by number, -1 when there is none. signal-safe */
HB_INLINE int64_t hb_table_row(const struct hb_table_head *h, uint64_t vaddr) {
  const char *b = (const char *)h;
  uint64_t off = vaddr - h->text_lo;
  if (off >= h->text_hi - h->text_lo) return -1;
  const uint32_t *index = (const uint32_t *)(b + h->index_off) + (off >> HB_BUCKET_BITS);
  uint32_t first = index[0], next = index[1], n = next - first;
  if (first > next || next > h->rows) return -1;
  uint16_t low = (uint16_t)(off & ((1u << HB_BUCKET_BITS) - 1));
  /* with none of its own, the last row of an earlier KiB reaches here */
  uint32_t row = first + hb_count_upto((const uint16_t *)(b + h->pcs_off) + first, n, h->rows - first, low) - 1;
  if (HB_UNLIKELY(row >= h->rows)) return -1; /* nor is there an earlier one */
  uint32_t id = ((const uint8_t *)(b + h->ids_off))[row];
  if (HB_UNLIKELY(id == HB_ID_FAR)) id = hb_table_far(h, row);
  return id < h->rules ? (int64_t)id : -1;
}

/* The module that has an address, NULL for none. signal-safe */
static const struct hb_module *hb_module_at(const struct hb_modules *l, uintptr_t pc) {
  if (!l || !l->count) return NULL;
  const struct hb_module *m = hb_module_list(l);
  uint32_t n = l->count;
  while (n > 1) {
    uint32_t half = n / 2;
    m = m[half].lo <= pc ? m + half : m;
    n -= half;
  }
  return pc >= m->lo && pc < m->hi ? m : NULL;
}

/* The rule for an address; kind NONE where nothing is known. signal-safe */
static struct hb_rule hb_rule_at(const struct hb_unwind *u, uintptr_t pc) {
  const struct hb_module *m = hb_module_at(u->modules, pc);
  if (m && m->table) {
    const struct hb_table_head *h = (const struct hb_table_head *)(u->base + m->table);
    int64_t id = hb_table_row(h, pc - m->bias);
    if (id >= 0) return ((const struct hb_rule *)((const char *)h + h->rules_off))[id];
  }
  return (struct hb_rule){.kind = HB_RULE_NONE};
}

HB_INLINE _Atomic uint64_t *hb_rule_slot(struct hb_rules *r, uintptr_t ra) {
  return &r->word[ra & (HB_RULE_WORDS - 1)];
}

/* A packed rule as it is remembered. From SP on, all that such a step reads lies in the frame that the rule itself describes, so
 * that a walk has only the frame's end to compare with the stack's (hb_step_fast); a rule that does not keep to that, as tables
 * that nobody compiled may have, takes the slow step. */
HB_INLINE uint32_t hb_word_trusted(uint32_t word) {
  uint32_t kind = word & 7, cfa = word & HB_WORD_CFA, fp = word >> HB_WORD_FP_SHIFT;
  if (kind != HB_WORD_SP && kind != HB_WORD_FP) return word;
  int inside = kind == HB_WORD_FP || (cfa >= 8 && 8 * fp <= cfa);
  int saved = !HB_RA_SAVED || fp >= 2; /* the return address lies behind FP, below the CFA */
  return inside && saved && fp != HB_WORD_FP_FP ? word : HB_WORD_SLOW;
}

/* Remember the packed rule for a return address. */
HB_INLINE void hb_rule_keep(struct hb_rules *r, uintptr_t ra, uint32_t word) {
  if (r && !(ra >> 47)) hb_store_relaxed(hb_rule_slot(r, ra), (uint64_t)(ra >> HB_RULE_BITS) << 27 | word);
}

/* The packed rule for an address, from the table. signal-safe */
static HB_NOINLINE uint32_t hb_rule_find(const struct hb_unwind *u, uintptr_t pc) {
  const struct hb_module *m = u->rules ? u->rules->last : NULL;
  if (HB_UNLIKELY(!m || pc < m->lo || pc >= m->hi)) {
    m = hb_module_at(u->modules, pc);
    if (!m) return HB_WORD_NONE;
    if (u->rules) u->rules->last = m;
  }
  if (!m->table) return HB_WORD_NONE;
  const struct hb_table_head *h = (const struct hb_table_head *)(u->base + m->table);
  int64_t id = hb_table_row(h, pc - m->bias);
  return id < 0 ? HB_WORD_NONE : ((const uint32_t *)((const char *)h + h->words_off))[id] & HB_WORD_MASK;
}

/* Is the packed rule for a return address remembered? signal-safe */
HB_INLINE int hb_rule_known(struct hb_rules *rules, uintptr_t ra, uint64_t *word) {
  if (HB_UNLIKELY(!rules)) return 0;
  *word = hb_load_relaxed(hb_rule_slot(rules, ra));
  return *word >> 27 == ra >> HB_RULE_BITS;
}

/* The packed rule for a return address that was not met of late, which is remembered. signal-safe */
static HB_NOINLINE uint32_t hb_rule_learn(const struct hb_unwind *u, uintptr_t ra) {
  uint32_t word = hb_word_trusted(hb_rule_find(u, ra - 1));
  if (word & 7) hb_rule_keep(u->rules, ra, word);
  return word;
}

/* The packed rule for a return address. signal-safe */
HB_INLINE uint32_t hb_rule_word(const struct hb_unwind *u, uintptr_t ra) {
  uint64_t word;
  return hb_rule_known(u->rules, ra, &word) ? (uint32_t)word & HB_WORD_MASK : hb_rule_learn(u, ra);
}

/* Forget rules of another generation. Wiped first, then labelled: a handler in between wipes again. signal-safe */
static void hb_rules_renew(struct hb_rules *r, const struct hb_modules *l) {
  uint64_t generation = l ? l->generation : 0;
  if (HB_LIKELY(r->generation == generation)) return;
  r->last = NULL;
  for (uint32_t i = 0; i < HB_RULE_WORDS; i++) hb_store_relaxed(&r->word[i], 0);
  hb_compiler_barrier();
  r->generation = generation;
}

/* ---- one step ---- */

/* May the word at `a` be read? */
static int hb_stack_word(const struct hb_cursor *c, uintptr_t a) {
  uintptr_t from = c->exact && c->sp > HB_RED_ZONE ? c->sp - HB_RED_ZONE : c->sp;
  if (from < c->lo) from = c->lo;
  return !(a & 7) && a >= from && a < c->hi && c->hi - a >= 8;
}

static int hb_register(const struct hb_cursor *c, uint32_t column, uintptr_t *v) {
  if (column == HB_SP_COLUMN)
    *v = c->sp;
  else if (column == HB_FP_COLUMN)
    *v = c->bp;
  else if (c->file && c->exact && column < HB_FILE_COLUMNS)
    *v = c->file[hb_file_index(column)];
  else
    return 0;
  return 1;
}

#define HB_PROBE_PAGES 16 /* 64 KiB of an unknown stack are asked for, at about 100 ns a page */

/* How far a stack that nobody knows the bounds of (a coroutine's) reaches: whole pages above sp that can be read,
 * `pages` at most. 0: not even sp's own. What lies there may be unmapped at any time by who owns it: ask at each
 * walk, only about the stack that the walking thread runs on. signal-safe; about 100 ns a page */
static uintptr_t hb_stack_probe(uintptr_t sp, uint32_t pages) {
  uintptr_t hi = sp & ~(uintptr_t)4095;
  if (sp < 0x10000 || sp >> HB_VA_BITS) return 0; /* a null pointer is not asked about: the kernel would not read it */
  for (; pages && hb_readable8(hi); pages--) hi += 4096;
  return hi > sp ? hi : 0;
}

/* The interrupted registers become the frame. */
static enum hb_walk_end hb_step_signal(const struct hb_unwind *u, struct hb_cursor *c) {
  uintptr_t uc = c->sp + HB_UC_AT;
  if (uc & 7 || uc > c->hi || c->hi - uc < HB_UC_BYTES) return HB_WALK_BOUNDS;
  if (c->signals++ >= HB_MAX_SIGNALS) return HB_WALK_LIMIT;
  const uint64_t *file = (const uint64_t *)(uc + HB_UC_FILE);
  uintptr_t sp = file[HB_FILE_SP];
  if (sp < uc || sp >= c->hi) { /* the handler ran on another stack */
    const struct hb_range *r = NULL;
    for (uint32_t i = 0; i < 2; i++)
      if (hb_in(u->stacks[i], sp)) r = &u->stacks[i];
    c->lo = r ? r->lo : sp & ~(uintptr_t)4095;
    c->hi = r ? r->hi : hb_stack_probe(sp, HB_PROBE_PAGES); /* a coroutine's, that this thread ran on */
    if (c->hi <= sp) c->lo = c->hi = sp;
  }
  c->file = file;
  c->pc = file[HB_FILE_PC];
  c->bp = file[HB_FILE_BP];
  c->sp = sp;
  c->at = (uintptr_t)&file[HB_FILE_PC];
  c->bp_slot = c->extra = 0;
  c->plain = 0;
  c->exact = 1;
  c->how = HB_PC_EXACT;
  return HB_WALK_ON;
}

/* The caller's pc is `ra`, its sp follows `at`, where calls leave return addresses. */
static enum hb_walk_end hb_step_ra(struct hb_cursor *c, uintptr_t ra, uintptr_t at, uintptr_t bp, uint32_t how) {
  if (HB_UNLIKELY(!hb_code_like(ra))) {
    c->end_at = at;
    return ra ? HB_WALK_UNKNOWN : HB_WALK_OUTERMOST;
  }
  c->pc = ra;
  c->at = at;
  c->sp = at + 8;
  c->bp = bp;
  c->exact = 0;
  c->how = how;
  return HB_WALK_ON;
}

static enum hb_walk_end hb_step_to(struct hb_cursor *c, uintptr_t at, uintptr_t bp, uint32_t how) {
  return hb_step_ra(c, hb_strip(*(const uintptr_t *)at), at, bp, how);
}

#if HB_RA_SAVED
/* An interrupted instruction without a row: at a leaf's any instruction, and a function's first, the return address is
 * still in its register. 0: it cannot tell. */
static int hb_step_leaf(const struct hb_unwind *u, struct hb_cursor *c, enum hb_walk_end *end) {
  if (hb_restorer_at(c->pc)) {
    *end = hb_step_signal(u, c);
    return 1;
  }
  if (!c->file) return 0;
  uintptr_t ra = hb_strip(c->file[HB_FILE_RA]);
  if (!hb_code_like(ra) || (ra >= c->sp && ra < c->hi) || !hb_after_call(ra)) return 0;
  c->guessed = 1;
  *end = hb_step_ra(c, ra, c->sp - 8, c->bp, HB_PC_GUESS);
  return 1;
}
#else
/* An interrupted instruction without a row. 0: it cannot tell. */
static int hb_step_leaf(const struct hb_unwind *u, struct hb_cursor *c, enum hb_walk_end *end) {
  if (hb_restorer_at(c->pc)) {
    *end = hb_step_signal(u, c);
    return 1;
  }
  if (!hb_stack_word(c, c->sp)) return 0;
  uintptr_t top = *(const uintptr_t *)c->sp, at = c->sp, bp = c->bp, ra = top;
  /* hand-written code of a module: if a function that has rows called it, nothing was pushed yet */
  if (!hb_module_at(u->modules, c->pc) || hb_rule_at(u, top - 1).kind == HB_RULE_NONE) {
    int words = hb_sniff(c->pc);
    if (words < 0 || !hb_stack_word(c, at += 8 * (uintptr_t)words)) return 0;
    ra = *(const uintptr_t *)at;
    if (words) bp = top;
  }
  if (!hb_code_like(ra) || (ra >= c->sp && ra < c->hi) || !hb_after_call(ra)) return 0;
  c->guessed = 1;
  *end = hb_step_to(c, at, bp, HB_PC_GUESS);
  return 1;
}

#endif

/* No row: by frame pointer, {caller's bp, return address}. */
static enum hb_walk_end hb_step_chain(const struct hb_unwind *u, struct hb_cursor *c) {
  uintptr_t bp = c->bp;
  c->guessed = 2;
  if (bp == 0 && !c->exact) /* the ABI's mark; after what is no return address at all it marks nothing */
    return hb_module_at(u->modules, c->pc) || hb_after_call(c->pc) ? HB_WALK_OUTERMOST : HB_WALK_UNKNOWN;
  if (bp & 7 || bp < c->sp || bp >= c->hi || c->hi - bp < 16) return HB_WALK_UNKNOWN;
  const uintptr_t *f = (const uintptr_t *)bp;
  if (f[1] >= c->sp && f[1] < c->hi) return HB_WALK_UNKNOWN; /* no code on a stack */
  c->plain = !c->exact;
  c->bp_slot = bp;
  if (HB_RA_SAVED) c->extra = bp + 8;
  enum hb_walk_end end = hb_step_to(c, bp + 8, f[0], HB_PC_FP);
  if (end == HB_WALK_ON) c->guessed = 1;
  return end;
}

static enum hb_walk_end hb_step_unknown(const struct hb_unwind *u, struct hb_cursor *c) {
  if (c->exact) {
    enum hb_walk_end end;
    return hb_step_leaf(u, c, &end) ? end : hb_step_chain(u, c);
  }
  /* makecontext "returns" to the first byte of a function that is outermost */
  if (hb_rule_at(u, c->pc).kind == HB_RULE_END) return HB_WALK_OUTERMOST;
  if (hb_restorer_at(c->pc)) {
    hb_rule_keep(u->rules, c->pc, HB_WORD_SIGNAL);
    return hb_step_signal(u, c);
  }
  hb_rule_keep(u->rules, c->pc, HB_WORD_CHAIN);
  return hb_step_chain(u, c);
}

/* A step of any kind. On HB_WALK_ON the cursor is at the caller, else where it was. signal-safe */
static HB_NOINLINE enum hb_walk_end hb_step_slow(const struct hb_unwind *u, struct hb_cursor *c) {
  uintptr_t at = c->pc - !c->exact, cfa, v = 0;
  uint32_t word = c->exact ? hb_rule_find(u, at) : hb_rule_word(u, c->pc);
  struct hb_rule r = {.kind = HB_RULE_NONE};
  c->bp_slot = c->extra = 0;
  c->plain = 0;
  switch (word & 7) {
    case HB_WORD_END: return HB_WALK_OUTERMOST;
    case HB_WORD_SIGNAL: return hb_step_signal(u, c);
    case HB_WORD_CHAIN: return hb_step_chain(u, c);
    case HB_WORD_NONE: return hb_step_unknown(u, c);
    default: r = hb_rule_at(u, at);
  }
  uintptr_t off = (uintptr_t)(intptr_t)r.off, add = (uintptr_t)(intptr_t)r.add;
  switch (r.kind) {
    case HB_RULE_LINK:
      if (!hb_register(c, r.base, &v)) return HB_WALK_OTHER;
      cfa = c->sp + off;
      break;
    case HB_RULE_SP: cfa = c->sp + off; break;
    case HB_RULE_FP: cfa = c->bp + off; break;
    case HB_RULE_PLT: cfa = c->sp + off + ((c->pc & 15) >= add ? 8 : 0); break;
    case HB_RULE_REG:
      if (!hb_register(c, r.base, &v)) return HB_WALK_OTHER;
      cfa = v + off;
      break;
    case HB_RULE_DEREF:
      if (!hb_register(c, r.base, &v)) return HB_WALK_OTHER;
      cfa = v + off;
      if (r.index != HB_NO_INDEX) {
        if (!hb_register(c, r.index, &v)) return HB_WALK_OTHER;
        cfa += 8 * v;
      }
      if (!hb_stack_word(c, cfa)) return HB_WALK_BOUNDS;
      c->extra = cfa;
      cfa = *(const uintptr_t *)cfa + add;
      break;
    default: return HB_WALK_OTHER;
  }
  if (cfa & 7 || cfa < c->sp || cfa > c->hi || (cfa - c->sp < 8 && r.kind != HB_RULE_LINK)) return HB_WALK_BOUNDS;
  uintptr_t bp = c->bp;
  if (r.fp_kind == HB_FP_REG) {
    if (!hb_register(c, (uint32_t)r.fp, &bp)) return HB_WALK_OTHER;
  } else if (r.fp_kind != HB_FP_SAME) {
    uintptr_t slot = r.fp_kind == HB_FP_CFA ? cfa : r.fp_kind == HB_FP_SP ? c->sp : c->bp;
    slot += (uintptr_t)(intptr_t)r.fp;
    if (!hb_stack_word(c, slot)) return HB_WALK_BOUNDS;
    c->bp_slot = slot;
    bp = *(const uintptr_t *)slot;
  }
  c->plain = !c->exact && (r.kind == HB_RULE_SP || r.kind == HB_RULE_FP ||
                           (r.kind == HB_RULE_DEREF && r.index == HB_NO_INDEX));
  if (r.kind == HB_RULE_LINK) return hb_step_ra(c, hb_strip(v), cfa - 8, bp, HB_PC_TABLE);
#if HB_RA_SAVED
  c->extra = cfa + add; /* rules that use `add` for something else are not made for this machine */
  if (!hb_stack_word(c, c->extra)) return HB_WALK_BOUNDS;
  return hb_step_ra(c, hb_strip(*(const uintptr_t *)c->extra), cfa - 8, bp, HB_PC_TABLE);
#endif
  return hb_step_to(c, cfa - 8, bp, HB_PC_TABLE);
}

/* The usual step, from a return address and by its packed rule alone (bits above HB_WORD_MASK do not matter): CFA from sp or bp,
 * everything inside the stack. sp is aligned and not above hi, and so it is left. *slot: where bp was read from, 0 for nowhere. 0:
 * take the slow step, nothing has changed. What it costs is the way from one return address to the next: two loads, the rule's and
 * the return address's, each waiting for the other. signal-safe */
HB_INLINE int hb_step_fast(uint64_t word, uintptr_t *pc, uintptr_t *sp, uintptr_t *bp, uintptr_t hi, uintptr_t *slot) {
  uintptr_t back = word >> (HB_WORD_FP_SHIFT - 3) & 8 * 0xfffull, cfa = word & HB_WORD_CFA, room = hi - *sp;
  if (HB_LIKELY((word & 7) == HB_WORD_SP)) {
    if (HB_UNLIKELY(cfa > room)) return 0;
    cfa += *sp;
  } else {
    cfa += *bp;
    uintptr_t frame = cfa - *sp;
    if (HB_UNLIKELY((word & 7) != HB_WORD_FP || cfa & 7 || frame < 8 || frame > room || frame < back)) return 0;
  }
#if HB_RA_SAVED
  uintptr_t ra = hb_strip(*(const uintptr_t *)(cfa - back + 8)), caller = *(const uintptr_t *)(cfa - back);
#else
  uintptr_t ra = *(const uintptr_t *)(cfa - 8), caller = *bp;
  if (back) caller = *(const uintptr_t *)(cfa - back);
#endif
  if (HB_UNLIKELY(!hb_code_like(ra))) return 0;
  *slot = back ? cfa - back : 0;
  *bp = caller;
  *sp = cfa;
  *pc = ra;
  return 1;
}

/* ---- walks ---- */

/* A hook's caller: `frame` is the wrapper's HB_FRAME. Its return address is certain. */
static void hb_cursor_hook(struct hb_cursor *c, const void *frame, struct hb_range stack) {
  const uintptr_t *f = frame;
  uintptr_t sp = hb_frame_cfa(frame);
  c->pc = f[1], c->sp = sp, c->bp = f[0], c->at = sp - 8, c->how = HB_PC_CALLER;
  c->file = NULL, c->bp_slot = c->extra = c->end_at = 0; /* one by one: the compiler clears the whole by rep stos, at 30 ns */
  c->exact = c->plain = c->signals = c->guessed = 0;
  int known = hb_in(stack, sp);
  c->lo = known ? stack.lo : sp;
  c->hi = known ? stack.hi : sp;
}

/* Interrupted code: `uc` is the handler's third argument. */
static void hb_cursor_signal(struct hb_cursor *c, const void *uc, struct hb_range stack) {
  const uint64_t *file = (const uint64_t *)((const char *)uc + HB_UC_FILE);
  uintptr_t sp = file[HB_FILE_SP];
  *c = (struct hb_cursor){.pc = file[HB_FILE_PC], .sp = sp, .bp = file[HB_FILE_BP], .at = sp, .how = HB_PC_EXACT,
                          .exact = 1, .file = file};
  int known = hb_in(stack, sp);
  c->lo = known ? stack.lo : sp;
  c->hi = known ? stack.hi : sp;
}

static void hb_walk_ended(const struct hb_cursor *c, enum hb_walk_end end, struct hb_walked *w) {
  if (end != HB_WALK_OUTERMOST && end != HB_WALK_STOP) w->flags |= HB_STACK_CUT;
  if (c->guessed) w->flags |= HB_STACK_GUESSED;
}

/* Collect the callers of the frame at the cursor; the frame itself is the caller's to add. Ends with the cursor at
 * the last frame. signal-safe */
static enum hb_walk_end hb_walk_table(const struct hb_unwind *u, struct hb_cursor *c, struct hb_collect *out,
                                      struct hb_walked *w) {
  enum hb_walk_end end = HB_WALK_LIMIT;
  struct hb_rules *rules = u->rules;
  struct hb_range self = u->self;
  struct hb_collect into = *out; /* in registers */
  if (rules) hb_rules_renew(rules, u->modules);
  uintptr_t pc = c->pc, sp = c->sp, bp = c->bp, hi = c->hi, slot;
  uint32_t exact = c->exact;
  for (uint32_t steps = 0; steps < HB_WALK_STEPS; steps++) {
    uintptr_t at;
    uint32_t how = HB_PC_TABLE;
    uint64_t word;
    if (HB_UNLIKELY(!hb_rule_known(rules, pc, &word))) word = exact ? HB_WORD_NONE : hb_rule_learn(u, pc);
    if (HB_LIKELY(!exact && !(sp & 7) && hb_step_fast(word, &pc, &sp, &bp, hi, &slot))) {
      at = sp - 8;
    } else {
      c->pc = pc, c->sp = sp, c->bp = bp, c->exact = exact;
      if ((end = hb_step_slow(u, c)) != HB_WALK_ON) break;
      end = HB_WALK_LIMIT;
      pc = c->pc, sp = c->sp, bp = c->bp, hi = c->hi, exact = c->exact, how = c->how, at = c->at;
    }
    if (HB_UNLIKELY(hb_in(self, pc))) {
      if (!hb_in(u->stop, pc)) continue;
      end = HB_WALK_STOP;
      break;
    }
    hb_collect_add(&into, hb_pc(how, pc), at);
  }
  c->pc = pc, c->sp = sp, c->bp = bp, c->exact = exact;
  out->total = into.total;
  hb_walk_ended(c, end, w);
  return end;
}

#endif
