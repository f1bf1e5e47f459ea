//go:build ignore

/* backtrace: nanoseconds per synchronous backtrace at a given depth (argv[1]), warm: the agent's, alone and with its record, glibc
 * backtrace(), libunwind's unw_backtrace() and its unw_step() loop. Hooks are called from two places in turn, so that no stack is
 * quite the one before. Prints "name frames min median" over interleaved chunks; "nothing" is what to take off.
 *
 * With "spin" as the second argument it does a fixed amount of work at the bottom of the tower and prints the CPU time that took. */
#define _GNU_SOURCE
#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <time.h>
#ifdef HAVE_LIBUNWIND
#include <libunwind.h>
#endif

extern int side_begin(uintptr_t, uintptr_t, uintptr_t);
extern void side_tables(const void *, uint64_t);
extern uint32_t side_walk(void), side_verify(void), side_holds(void), side_lost(void);
extern void side_sample(void), side_forget(uint32_t);
extern uint64_t side_drain(void), side_joined(void);

long fp_run(int depth, long rounds); /* unwind/testdata/chain.h, with frame pointers and without */
long nofp_run(int depth, long rounds);
void chain_hook(void);

enum { CHUNKS = 100, MAX = 512 };
enum { NOTHING, NOTHING_FP, VERIFY, HOLDS, WALK, COLD, FORGET, SAMPLE, FP_WALK, FP_SAMPLE, GLIBC, UNW_BACKTRACE, UNW_STEP, WAYS };
static const struct {
  const char *name;
  int n; /* per chunk */
  int fp; /* in the tower with frame pointers, without tables */
} ways[WAYS] = {
    [NOTHING] = {"nothing", 2000, 0},
    [NOTHING_FP] = {"nothing, fp", 2000, 1},
    [VERIFY] = {"agent: verify", 2000, 0},
    [HOLDS] = {"the words that verify compares", 2000, 0}, /* of the stack that VERIFY remembered */
    [WALK] = {"agent: walk, rules known", 2000, 0},
    [COLD] = {"agent: walk, rules unknown", 1000, 0},
    [FORGET] = {"forget", 1000, 0},
    [SAMPLE] = {"agent: sample into ring", 2000, 0},
    [FP_WALK] = {"agent, -g fp: walk", 2000, 1},
    [FP_SAMPLE] = {"agent, -g fp: sample into ring", 2000, 1},
    [GLIBC] = {"glibc backtrace()", 50, 0},
    [UNW_BACKTRACE] = {"libunwind unw_backtrace()", 500, 0},
    [UNW_STEP] = {"libunwind unw_step() loop", 20, 0},
};
static int way, walked;
static void *frames[MAX];
static const void *region; /* argv[2]: unwind tables of this process */
static uint64_t region_bytes, verified;
static int (*libc_backtrace)(void **, int); /* libunwind exports a function of the same name, which would be found first */
static double t[WAYS][CHUNKS];
static int count[WAYS];

static double now_ns(clockid_t clock) {
  struct timespec s;
  clock_gettime(clock, &s);
  return (double)s.tv_sec * 1e9 + (double)s.tv_nsec;
}

__attribute__((noinline)) void chain_hook(void) {
  static unsigned samples;
  switch (way) {
    case VERIFY: walked = (int)side_verify(), verified++; break;
    case HOLDS: walked = (int)side_holds(); break;
    case COLD: side_forget((uint32_t)walked); __attribute__((fallthrough));
    case WALK: case FP_WALK: walked = (int)side_walk(); break;
    case FORGET: side_forget((uint32_t)walked); break;
    case SAMPLE: case FP_SAMPLE:
      side_sample();
      if (++samples % 64 == 0) side_drain();
      break;
    case GLIBC: walked = libc_backtrace(frames, MAX); break;
#ifdef HAVE_LIBUNWIND
    case UNW_BACKTRACE: walked = unw_backtrace(frames, MAX); break;
    case UNW_STEP: {
      unw_context_t uc;
      unw_cursor_t c;
      unw_getcontext(&uc);
      unw_init_local(&c, &uc);
      walked = 1;
      while (unw_step(&c) > 0) walked++;
      break;
    }
#endif
    default: break;
  }
  __asm__ volatile("" ::: "memory"); /* no tail call */
}

static double run(int w, int tower) {
  if (!ways[w].fp) side_tables(region, region_bytes);
  way = w;
  double t0 = now_ns(CLOCK_MONOTONIC);
  if (ways[w].fp) fp_run(tower, ways[w].n);
  else nofp_run(tower, ways[w].n);
  double ns = (now_ns(CLOCK_MONOTONIC) - t0) / ways[w].n;
  if (!ways[w].fp) side_tables(NULL, 0);
  return ns;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* What the tower needs so that stacks have `depth` frames: its walks say how many they have without one. */
static int tower_for(int depth, int w) {
  run(w, 1);
  return depth - walked + 1 > 0 ? depth - walked + 1 : 0;
}

static void *body(void *arg) {
  pthread_attr_t at;
  void *lo;
  size_t size;
  int depth = *(int *)arg;
  if (pthread_getattr_np(pthread_self(), &at) || pthread_attr_getstack(&at, &lo, &size) ||
      side_begin((uintptr_t)lo, (uintptr_t)lo + size, getauxval(AT_SYSINFO_EHDR)))
    exit(1);
  int tower[2] = {tower_for(depth, WALK), tower_for(depth, FP_WALK)};
  for (int c = -1; c < CHUNKS; c++)
    for (int w = 0; w < WAYS; w++) {
#ifndef HAVE_LIBUNWIND
      if (w == UNW_BACKTRACE || w == UNW_STEP) continue;
#endif
      if (w == FORGET) run(WALK, tower[0]); /* it forgets what the walk before has met */
      double ns = run(w, tower[ways[w].fp]);
      if (c >= 0) t[w][c] = ns;
      count[w] = walked;
    }
  return NULL;
}

static void *spin(void *arg) {
  way = NOTHING;
  double t0 = now_ns(CLOCK_THREAD_CPUTIME_ID);
  nofp_run(*(int *)arg - 8, 100000000);
  printf("%.0f\n", now_ns(CLOCK_THREAD_CPUTIME_ID) - t0);
  return NULL;
}

int main(int argc, char **argv) {
  int depth = argc > 1 ? atoi(argv[1]) : 30;
  pthread_t th;
  if (argc > 2 && !strcmp(argv[2], "spin"))
    return pthread_create(&th, NULL, spin, &depth) || pthread_join(th, NULL);
  void *libc = dlopen("libc.so.6", RTLD_NOW);
  if (!libc || !(libc_backtrace = (int (*)(void **, int))dlsym(libc, "backtrace")))
    return 1;
  void *warm[4];
  libc_backtrace(warm, 4); /* loads libgcc, before the tables are made */
  puts("ready");
  fflush(stdout);
  if (argc > 2 && getchar() != EOF) {
    int fd = open(argv[2], O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return 1;
    region_bytes = (uint64_t)st.st_size;
    region = mmap(NULL, region_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (region == MAP_FAILED) return 1;
  }
  if (pthread_create(&th, NULL, body, &depth) || pthread_join(th, NULL))
    return 1;
  for (int w = 0; w < WAYS; w++) {
    qsort(t[w], CHUNKS, sizeof **t, by_value);
    printf("%s|%d|%.2f|%.2f\n", ways[w].name, count[w], t[w][0], t[w][CHUNKS / 2]);
  }
  fprintf(stderr, "%.1f %% of the verified walks at depth %d met the last stack\n",
          100 * (double)side_joined() / (double)(verified ? verified : 1), depth);
  return 0;
}
