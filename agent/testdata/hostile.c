//go:build ignore

/* hostile.c: what reads the target's stack, its unwind tables and its clocks, on stacks, tables and numbers that nobody wrote
 * for it, under AddressSanitizer and UndefinedBehaviorSanitizer. Stacks and tables end at pages that cannot be read. Usage:
 * hostile walk|tables|points ROUNDS [SEED].
 *
 *   walk    stacks of random words, by tables, by frame pointers, in hooks and handlers, on known stacks and others. Each
 *           is taken twice: as the agent does (verify.h, what it remembers; delta.h, decoded again) and plainly, without any
 *           memory; both must be the same. In between a few words change, as a running program changes them.
 *   tables  the same by tables with bytes changed at random
 *   points  sampling points: their weights add up to the CPU time, whatever steps it makes */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sampler/points.h"
#include "unwind/delta.h"

#define CHECK(c)                                                                                   \
  do {                                                                                             \
    if (!(c)) {                                                                                    \
      fprintf(stderr, "hostile.c:%d: %s does not hold, round %ld, seed %lu\n", __LINE__, #c, round_, seed); \
      _exit(1);                                                                                    \
    }                                                                                              \
  } while (0)

enum { PAGE = 4096, STACK = 4 * PAGE, REGION = 2 * PAGE, BUCKETS = 4, ROWS = 64, RULES = 24, FAR = 8 };
static const uint64_t text_lo = 0x5000000000, text_hi = 0x5000000000 + (BUCKETS << HB_BUCKET_BITS);

static long rounds, round_;
static unsigned long seed = 1;
static uint64_t state, frames_seen, joined, deepest, cut_both;
static char *stack, *other; /* what the thread runs on; what a coroutine would */
static char *region;
static struct hb_region_slot *slot;
static struct hb_local local;
static struct hb_proc process;

static uint64_t any(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
static uint64_t below(uint64_t n) { return (any() >> 11) % n; }

/* Memory whose last byte is the last before a page that cannot be read; and so at its start. */
static char *fenced(size_t bytes) {
  char *p = mmap(NULL, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED && mprotect(p + PAGE, bytes, PROT_READ | PROT_WRITE) == 0);
  return p + PAGE;
}

/* ---- tables ---- */

static uint32_t packed(const struct hb_rule *r) { /* as table.go packs, for the commonest; the rest is HB_WORD_SLOW */
  uint32_t kind = r->kind == HB_RULE_SP ? HB_WORD_SP : r->kind == HB_RULE_FP ? HB_WORD_FP : r->kind == HB_RULE_END ? HB_WORD_END
                  : r->kind == HB_RULE_SIGNAL ? HB_WORD_SIGNAL : HB_WORD_SLOW, fp = 0;
  if (kind == HB_WORD_END || kind == HB_WORD_SIGNAL) return kind;
  if (r->fp_kind == HB_FP_CFA && r->fp < 0 && -r->fp / 8 < HB_WORD_FP_FP) fp = (uint32_t)(-r->fp / 8);
  else if (r->fp_kind == HB_FP_FP && r->fp == 0) fp = HB_WORD_FP_FP;
  else if (r->fp_kind != HB_FP_SAME) return HB_WORD_SLOW;
  if (kind == HB_WORD_SLOW || r->off < 0 || r->off & 7 || r->off > 0x7ff8) return HB_WORD_SLOW;
  return kind | (uint32_t)r->off | fp << HB_WORD_FP_SHIFT;
}

static int sane; /* tables as compilers make them, more or less, so that walks get far */

static struct hb_rule some_rule(void) {
  struct hb_rule r = {.kind = HB_RULE_SP, .off = (int32_t)(8 * (1 + below(6)))};
  switch (below(sane ? 250 : 12) + (sane && below(2) ? 8 : 0)) {
    case 0: r.kind = HB_RULE_FP; r.off = 16; r.fp_kind = HB_FP_CFA; r.fp = -16; break;
    case 1: r.kind = HB_RULE_PLT; r.add = (int32_t)below(16); break;
    case 2: r.kind = HB_RULE_REG; r.base = (uint8_t)below(18); break;
    case 3: r.kind = HB_RULE_DEREF; r.base = (uint8_t)(6 + below(3)); r.index = below(2) ? HB_NO_INDEX : (uint8_t)below(16); r.add = 8; break;
    case 4: r.kind = below(4) ? HB_RULE_SP : HB_RULE_END; break;
    case 5: r.kind = below(2) ? HB_RULE_SP : HB_RULE_SIGNAL; break;
    case 6: r.kind = (uint8_t)below(HB_RULES + 2); r.fp_kind = (uint8_t)below(7); r.off = (int32_t)any(); r.add = (int32_t)any(); r.fp = (int32_t)any(); break;
    case 7: r.fp_kind = HB_FP_FP; break;
    case 8: r.fp_kind = HB_FP_CFA; r.fp = -8 * (int32_t)(2 + below(4)); break;
    case 9: r.fp_kind = HB_FP_SP; r.fp = 8 * (int32_t)below(4); break;
  }
  return r;
}

static uint64_t generation;

/* A region with one list of one module with one table, whose parts fill it to its last byte. */
static void make_region(void) {
  memset(region, 0, REGION);
  struct hb_region *h = (struct hb_region *)region;
  size_t list = sizeof *h + sizeof *slot, table = list + sizeof(struct hb_modules) + 2 * sizeof(struct hb_module);
  *h = (struct hb_region){.magic = HB_REGION_MAGIC, .version = HB_TABLES_VERSION, .header_bytes = sizeof *h, .bytes = REGION,
                          .slots = 1, .machine = HB_ELF_MACHINE};
  slot = (struct hb_region_slot *)(h + 1);
  hb_store_relaxed(&slot->modules, (uint64_t)list);
  struct hb_modules *l = (struct hb_modules *)(region + list);
  *l = (struct hb_modules){.magic = HB_MODULES_MAGIC, .generation = ++generation, .proc_uid = 7, .count = 2};
  struct hb_module *m = (struct hb_module *)(l + 1);
  m[0] = (struct hb_module){text_lo + 0x1000, text_hi + 0x1000, 0x1000, table};
  m[1] = (struct hb_module){text_hi + 0x2000, text_hi + 0x3000, 0, 0}; /* without a table */
  struct hb_table_head *t = (struct hb_table_head *)(region + table);
  uint32_t bytes = (uint32_t)(REGION - table), end = bytes;
  *t = (struct hb_table_head){.magic = HB_TABLE_MAGIC, .version = HB_TABLES_VERSION, .machine = HB_ELF_MACHINE, .bytes = bytes,
                              .text_lo = text_lo, .text_hi = text_hi, .buckets = BUCKETS, .rows = ROWS, .rules = RULES};
  t->ids_off = end -= ROWS;
  t->pcs_off = end -= ROWS * 2;
  t->far = FAR;
  t->far_off = end -= FAR * (uint32_t)sizeof(struct hb_far);
  t->index_off = end -= (BUCKETS + 1) * 4;
  t->words_off = end -= RULES * 4;
  t->rules_off = (end - RULES * (uint32_t)sizeof(struct hb_rule)) & ~7u;
  struct hb_rule *rules = (struct hb_rule *)((char *)t + t->rules_off);
  uint32_t *words = (uint32_t *)((char *)t + t->words_off), *index = (uint32_t *)((char *)t + t->index_off);
  uint16_t *pcs = (uint16_t *)((char *)t + t->pcs_off);
  uint8_t *ids = (uint8_t *)((char *)t + t->ids_off);
  struct hb_far *far = (struct hb_far *)((char *)t + t->far_off);
  for (uint32_t i = 1; i < RULES; i++) {
    rules[i] = some_rule();
    words[i] = packed(&rules[i]);
  }
  uint32_t per = ROWS / BUCKETS;
  for (uint32_t i = 0; i < ROWS; i++) {
    pcs[i] = (uint16_t)(i % per * ((1 << HB_BUCKET_BITS) / per));
    ids[i] = (uint8_t)(sane ? 1 + below(RULES - 1) : below(RULES));
  }
  uint32_t row = 0;
  for (uint32_t i = 0; i < FAR; i++, row += 1 + (uint32_t)below(ROWS / FAR - 1)) {
    far[i] = (struct hb_far){row, (uint32_t)(sane ? 1 + below(RULES - 1) : below(RULES + 1))};
    if (sane || below(8)) ids[row] = HB_ID_FAR;
  }
  for (uint32_t i = 0; i <= BUCKETS; i++) index[i] = i * per;
}

static void open_region(void) {
  memset(&local, 0, sizeof local);
  memset(&hb_tables, 0, sizeof hb_tables);
  hb_tables_open(&hb_tables, region, REGION); /* one that is refused leaves walks by frame pointers */
}

/* ---- stacks ---- */

static uint64_t word(const char *base, uint32_t codes) {
  uint64_t code = text_lo + 0x1000 + below(text_hi - text_lo), in = (uint64_t)base + (below(STACK) & ~7ull);
  if (below(16) < codes) return code;
  switch (below(12)) {
    case 0: return 0;
    case 1: return any();
    case 2: return (uint64_t)base + STACK - 8 * below(4);
    case 3: return (uint64_t)base + STACK + 8 * below(3);
    case 4: return (uint64_t)base - 8 * below(3);
    case 5: return in + below(8);
    case 6: return ~0ull - below(64);
    case 7: return text_hi + 0x2000 + below(0x1000); /* code without rows */
    case 8: return (uint64_t)&fenced + below(256);   /* real code, without rows */
    default: return in;
  }
}

static void fill(char *base, uint32_t codes) {
  for (int i = 0; i < STACK; i += 8) *(uint64_t *)(base + i) = word(base, codes);
  for (int i = 1; sane && i < 64; i++) ((uint64_t *)(base + STACK))[-i] = hb.start_lo + 2; /* the root: a thread's start */
  if (sane || below(2)) return; /* or a chain of frame pointers through it */
  for (uint64_t at = 8 * below(64); at + 16 <= STACK;) {
    uint64_t next = at + 16 + 8 * below(12);
    ((uint64_t *)(base + at))[0] = (uint64_t)base + next;
    ((uint64_t *)(base + at))[1] = text_lo + 0x1000 + below(text_hi - text_lo + 0x3000);
    at = next;
  }
}

/* ---- a stack, taken in both ways ---- */

static struct hb_frame plain[HB_MAX_FRAMES + 1], decoded[HB_MAX_FRAMES], last[HB_MAX_FRAMES];
static uint32_t last_n;

static void take(struct hb_tls *t, const void *frame, const void *uc) {
  struct hb_stack_taken x, y;
  struct hb_stack s;
  memset(&x, 0xa5, sizeof x);
  if (uc) hb_stack_signal(t, uc, &x);
  else hb_stack_hook(t, frame, &x);
  CHECK(x.v.n + x.v.joined >= 1 && x.v.n + x.v.joined <= HB_MAX_FRAMES);
  joined += x.v.joined;

  struct hb_range known = {t->stack_lo, t->stack_hi};
#if !HB_RA_SAVED
  for (const uint64_t *f = frame; !uc && hb_is_self(f[1]); f = frame) { /* the agent's own frames are left out */
    if (f[0] & 7 || f[0] <= (uint64_t)f || !hb_in(known, f[0]) || f[0] > known.hi - 16) break;
    frame = (const void *)f[0];
  }
#endif
  if (uc) hb_cursor_signal(&y.c, uc, known);
  else hb_cursor_hook(&y.c, frame, known);
  if (y.c.hi == y.c.sp) {
    uintptr_t hi = hb_stack_probe(y.c.sp, HB_PROBE_PAGES);
    y.c.lo = y.c.sp & ~(uintptr_t)4095;
    y.c.hi = hi ? hi : y.c.sp;
  }
  y.w = (struct hb_walked){0, 0, 0};
  struct hb_collect all = {plain, 0};
  y.u = x.u;
  y.u.rules = NULL;
  if (HB_RA_SAVED) hb_stack_skip_self(&y.u, &y.c);
  hb_collect_add(&all, hb_pc(y.c.how, y.c.pc), y.c.at);
  if (y.c.hi == y.c.sp) {
    y.w.flags |= HB_STACK_CUT;
  } else if (x.u.modules) {
    hb_walk_table(&y.u, &y.c, &all, &y.w);
  } else {
    hb_walk_fp(&all, &y.w, y.c.bp, y.c.sp, y.c.hi);
  }
  hb_collect_end(&all, &y.w);

  hb_delta(t, &x, &s);
  t->need_full = below(50) == 0;
  uint32_t n = (uint32_t)s.same + s.count;
  CHECK(n <= HB_MAX_FRAMES && s.same <= last_n);
  const struct hb_frame *sent = hb_scratch(&local);
  for (uint32_t i = 0; i < s.same; i++) decoded[i] = last[i];
  for (uint32_t i = 0; i < s.count; i++) decoded[s.same + i] = sent[(s.count - 1u - i)];
  CHECK(n == y.w.n);
  for (uint32_t i = 0; i < n; i++) {
    const struct hb_frame *p = &plain[n - 1 - i];
    CHECK((decoded[i].pc & HB_PC_BITS) == (p->pc & HB_PC_BITS) && decoded[i].at == p->at);
  }
  CHECK((x.w.flags & HB_STACK_CUT) == (y.w.flags & HB_STACK_CUT) && x.w.omitted == y.w.omitted);
  memcpy(last, decoded, n * sizeof *last);
  last_n = n;
  frames_seen += n;
  if (n > deepest) deepest = n;
  cut_both += x.w.omitted != 0;
}

static void stacks(int corrupt) {
  static uint64_t uc[128];
  struct hb_tls *t = hb_self();
  region = fenced(REGION);
  stack = fenced(STACK);
  other = fenced(STACK);
  hb.slot = &process;
  hb.uid = 7;
  hb.self_lo = text_lo + 0x1400, hb.self_hi = text_lo + 0x1440; /* some of the words are calls from the agent itself */
  hb.start_lo = text_lo + 0x1430, hb.start_hi = text_lo + 0x1434;
  t->local = &local;
  for (round_ = 0; round_ < rounds; round_++) {
    sane = below(2) != 0;
    make_region();
    if (corrupt)
      for (uint64_t i = 1 + below(8); i; i--) {
        uint64_t at = below(4) ? below(512) : below(REGION);
        region[at] = below(2) ? (char)any() : (char)(region[at] ^ 1 << below(8));
      }
    open_region();
    if (!corrupt) CHECK(hb_tables.base);
    if (below(8) == 0) hb_tables.base = NULL; /* by frame pointers */
    t->stack_lo = (uintptr_t)stack;
    t->stack_hi = (uintptr_t)stack + STACK;
    t->need_full = 1;
    t->shallowest = 0;
    last_n = 0;
    uint32_t codes = sane ? 15 + (uint32_t)below(2) : (uint32_t)below(17);
    fill(stack, codes);
    fill(other, codes);
    uint64_t at = below(STACK / 8 - 2);
    for (int k = 0; k < 12; k++) {
      char *on = below(8) ? stack : other;
      for (uint64_t i = below(4); i; i--) *(uint64_t *)(on + (below(STACK) & ~7ull)) = word(on, codes);
      if (below(3) == 0) at = below(STACK / 8 - 2);
      if (below(3) == 0) t->shallowest = (uintptr_t)on + below(STACK);
      if (below(3)) {
#if HB_RA_SAVED /* beside the record, where its frame ends */
        const uint64_t *record = (const uint64_t *)(on + 8 * at);
        struct hb_caller caller = {record[0], record[1], (uintptr_t)(record + 2 + 2 * below(4))};
        if (caller.cfa > (uintptr_t)on + STACK) caller.cfa = (uintptr_t)(record + 2);
        take(t, &caller, NULL);
#else
        take(t, on + 8 * at, NULL);
#endif
      } else { /* a handler's registers; the stack pointer may point anywhere */
        for (int i = 0; i < 128; i++) uc[i] = word(on, codes);
        if (below(4)) uc[5 + HB_FILE_SP] = (uint64_t)on + 8 * at;
        if (below(4)) uc[5 + HB_FILE_PC] = text_lo + 0x1000 + below(text_hi - text_lo);
        take(t, NULL, uc);
      }
    }
  }
  CHECK(frames_seen > (uint64_t)rounds * 12 && (corrupt || joined > 0));
  printf("%lu frames, %lu of them by memory, deepest %lu, %lu with frames left out\n", frames_seen, joined, deepest, cut_both);
}

/* ---- sampling points ---- */

static void points(void) {
  struct hb_tls *t = hb_self();
  for (round_ = 0; round_ < rounds; round_++) {
    uint64_t period = hb.cpu_period_ns = 1 + below(1ull << below(30)), longest = period, from = below(1ull << 50), weight = 0;
    uint64_t cpu = from + (below(2) ? below(period * 20) : 0); /* a thread has run before its birth is seen */
    t->random = any() | 1;
    hb.stamps_mult = 1 + below(1ull << 24);
    int turned = (int)below(2); /* the recorder changes the period meanwhile, to anything */
    hb_store_relaxed(&hb.header->knob_cpu_period_ns, 0);
    hb_points_begin(t, from, cpu);
    for (int i = 0; i < 100; i++) {
      uint64_t step = below(4) ? below(period) : below(4) ? below(period * 20) : below(period * 5000);
      cpu += step;
      if (turned && below(3) == 0) hb_store_relaxed(&hb.header->knob_cpu_period_ns, below(4) ? below(period * 50) : any());
      if (hb_cpu_period() > longest) longest = hb_cpu_period();
      uint64_t w = hb_points_pass(t, cpu, any());
      CHECK((turned || w % period == 0) && t->cpu_next > cpu && t->cpu_next <= t->cpu_stratum && t->cpu_stratum - t->cpu_next <= longest);
      weight += w;
      CHECK(weight <= cpu - from + longest && weight + longest >= cpu - from);
    }
    hb_points_pass(t, cpu - below(period), any()); /* a clock that went backwards must not hang */
  }
  hb_store_relaxed(&hb.header->knob_cpu_period_ns, 0);
  hb.cpu_period_ns = 0;
  hb_points_begin(t, 0, any());
  CHECK(hb_points_pass(t, any(), 5) == 0 && !hb_point_near(t, 6));
  puts("weights add up");
}

int main(int argc, char **argv) {
  CHECK(argc >= 3);
  rounds = atol(argv[2]);
  if (argc > 3) seed = strtoul(argv[3], NULL, 10);
  state = seed * 0x9e3779b97f4a7c15ull | 1;
  if (!strcmp(argv[1], "points")) points();
  else stacks(!strcmp(argv[1], "tables"));
  return 0;
}
