/* cost.c: what a synchronous backtrace costs, by each way, at several depths, in one run: ways are interleaved, the
 * least of many rounds counts, the calls around them are taken off. Lines of the result: "way/depth picoseconds". */
#include "inside.h"

#include <dlfcn.h>
#include <time.h>
#ifdef HB_LIBUNWIND
#define UNW_LOCAL_ONLY
#include <libunwind.h>
#endif

long fp_run(int depth, long rounds);
long nofp_run(int depth, long rounds);
void chain_hook(void);

enum { NOTHING, FRAME_POINTERS, TABLE, TABLE_WIPE, WIPE, VERIFY, BACKTRACE, LIBUNWIND, WAYS };
static const char *names[WAYS] = {"nothing", "fp", "table", "table-and-wipe", "wipe", "verify", "backtrace", "libunwind"};

static int way;
static int (*libc_backtrace)(void **, int); /* libunwind has one of the same name */
static struct hb_rules rules;
static struct hb_memory memory;
static struct hb_taken scratch;
static struct hb_frame frames[HB_MAX_FRAMES];
static struct hb_unwind unwind;
static struct hb_range stack;
static uint32_t found;
static long joins, walks;

static void wipe(void) {
  for (uint32_t i = 0; i < HB_RULE_WORDS; i++) hb_store_relaxed(&rules.word[i], 0);
}

__attribute__((noinline)) static void by_table(const void *frame) {
  struct hb_cursor c;
  struct hb_walked w = {0, 0, 0};
  struct hb_collect out = {frames, 0};
  hb_cursor_hook(&c, frame, stack);
  hb_collect_add(&out, hb_pc(c.how, c.pc), c.at);
  hb_walk_table(&unwind, &c, &out, &w);
  hb_collect_end(&out, &w);
  found = w.n;
}

__attribute__((noinline)) static void by_verify(const void *frame) {
  struct hb_cursor c;
  struct hb_walked w = {0, 0, 0};
  hb_cursor_hook(&c, frame, stack);
  struct hb_verified v;
  hb_walk_verify(&unwind, &c, &memory, &scratch, &w, &v);
  hb_memory_keep(&memory, &unwind, &c, &scratch, &v);
  joins += v.end == HB_WALK_JOINED;
  walks++;
  found = w.n;
}

__attribute__((noinline)) static void by_fp(const void *frame) {
  const uintptr_t *f = frame;
  struct hb_walked w = {0, 0, 0};
  struct hb_collect out = {frames, 0};
  hb_collect_add(&out, hb_pc(HB_PC_CALLER, f[1]), (uintptr_t)(f + 1));
  hb_walk_fp(&out, &w, f[0], (uintptr_t)(f + 2), stack.hi);
  hb_collect_end(&out, &w);
  found = w.n;
}

__attribute__((noinline)) void chain_hook(void) {
  static void *pcs[HB_MAX_FRAMES];
  const void *frame = __builtin_frame_address(0);
  switch (way) {
    case FRAME_POINTERS: by_fp(frame); break;
    case TABLE_WIPE: wipe(); __attribute__((fallthrough));
    case TABLE: by_table(frame); break;
    case WIPE: wipe(); break;
    case VERIFY: by_verify(frame); break;
    case BACKTRACE: found = (uint32_t)libc_backtrace(pcs, HB_MAX_FRAMES); break;
#ifdef HB_LIBUNWIND
    case LIBUNWIND: found = (uint32_t)unw_backtrace(pcs, HB_MAX_FRAMES); break;
#endif
    default: break;
  }
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void) {
  if (!test_get_tables()) return 2;
  void *libc = dlopen("libc.so.6", RTLD_NOW);
  libc_backtrace = (int (*)(void **, int))dlsym(libc, "backtrace");
  if (!libc_backtrace) return 3;
  stack = test_main_stack();
  unwind = test_unwind(&rules);
  char path[4096];
  snprintf(path, sizeof path, "%s/result", getenv("HBTEST_DIR"));
  FILE *f = fopen(path, "w");
  if (!f) return 2;
  static const int depths[] = {10, 30, 100};
  for (int d = 0; d < 3; d++) {
    double best[WAYS];
    uint32_t seen[WAYS] = {0};
    for (way = 0; way < WAYS; way++) best[way] = 1e18;
    for (int round = 0; round < 40; round++)
      for (way = 0; way < WAYS; way++) {
#ifndef HB_LIBUNWIND
        if (way == LIBUNWIND) continue;
#endif
        long n = way == BACKTRACE ? 100 : way == TABLE_WIPE || way == WIPE ? 400 : 4000;
        int tower = depths[d] - 5; /* main and what called it, the loop and its callee are frames too */
        double t = now();
        if (way == FRAME_POINTERS) fp_run(tower, n); else nofp_run(tower, n);
        t = (now() - t) / (double)n;
        if (t < best[way]) best[way] = t;
        seen[way] = found;
      }
    for (way = 1; way < WAYS; way++) {
      if (best[way] > 1e17) continue;
      double base = way == TABLE_WIPE ? best[WIPE] : best[NOTHING];
      fprintf(f, "%s/%d %ld\n", way == TABLE_WIPE ? "table-cold" : names[way], depths[d], (long)((best[way] - base) * 1000));
      fprintf(f, "%s/%d/frames %u\n", way == TABLE_WIPE ? "table-cold" : names[way], depths[d], seen[way]);
    }
  }
  fprintf(f, "joined %ld\nverified %ld\n", joins, walks);
  fclose(f);
  return 0;
}
