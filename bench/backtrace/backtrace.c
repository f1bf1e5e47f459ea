//go:build ignore

/* backtrace: nanoseconds per synchronous backtrace at a given depth (argv[1]), warm: the agent's walk, the agent's
 * whole sample into the ring (from one call site, and from several in turn), glibc backtrace(), libunwind's
 * unw_backtrace() and its unw_step() loop. Prints "name frames min median" over interleaved chunks. */
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
#include <sys/auxv.h>
#include <time.h>
#ifdef HAVE_LIBUNWIND
#include <libunwind.h>
#endif

extern int side_begin(uintptr_t, uintptr_t, uintptr_t);
extern void side_tables(const void *, uint64_t);
static const void *region; /* argv[2]: unwind tables of this process */
static uint64_t region_bytes;
extern uint32_t side_walk(void), side_lost(void);
extern void side_sample(void);
extern uint64_t side_drain(void);

enum { CHUNKS = 200, MAX = 512 };
static void *frames[MAX];

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#define LOOP(n, call)         \
  for (int i = 0; i < n; i++) \
    __asm__ volatile("" : : "r"((uint64_t)(call)) : "memory")

static int sampled(void) {
  side_sample();
  return 0;
}

__attribute__((noinline)) static int walk_once(int n) {
  LOOP(n, side_walk());
  return (int)side_walk();
}
__attribute__((noinline)) static int sample_once(int n) {
  for (int i = 0; i < n; i++) {
    side_sample();
    if (i % 64 == 0)
      side_drain();
  }
  return (int)side_walk();
}
__attribute__((noinline)) static int three_sites(int i) {
  /* three return addresses: each sample's leaf differs from the one before */
  if (i % 3 == 0)
    side_sample();
  else if (i % 3 == 1)
    side_sample();
  else
    side_sample();
  __asm__ volatile("" ::: "memory");
  return i;
}
__attribute__((noinline)) static int sample_sites(int n) {
  for (int i = 0; i < n; i++) {
    three_sites(i);
    if (i % 64 == 0)
      side_drain();
  }
  return (int)side_walk();
}
/* glibc's own: libunwind exports a function of the same name, which would be found first. */
static int (*libc_backtrace)(void **, int);
__attribute__((noinline)) static int glibc_backtrace(int n) {
  LOOP(n, libc_backtrace(frames, MAX));
  return libc_backtrace(frames, MAX);
}
#ifdef HAVE_LIBUNWIND
__attribute__((noinline)) static int libunwind_backtrace(int n) {
  LOOP(n, unw_backtrace(frames, MAX));
  return unw_backtrace(frames, MAX);
}
__attribute__((noinline)) static int libunwind_step(int n) {
  int count = 0;
  for (int i = 0; i < n; i++) {
    unw_context_t uc;
    unw_cursor_t c;
    unw_getcontext(&uc);
    unw_init_local(&c, &uc);
    count = 1;
    while (unw_step(&c) > 0)
      count++;
  }
  return count;
}
#endif

static int by_tables(int (*way)(int), int n) {
  side_tables(region, region_bytes);
  int frames = way(n);
  side_tables(NULL, 0);
  return frames;
}
static int tables_walk(int n) { return by_tables(walk_once, n); }
static int tables_sample(int n) { return by_tables(sample_once, n); }
static int tables_sites(int n) { return by_tables(sample_sites, n); }

static const struct {
  const char *name;
  int (*f)(int);
  int n; /* per chunk */
} ways[] = {
    {"agent, tables: walk, none kept", tables_walk, 2000},
    {"agent, tables: sample into ring", tables_sample, 2000},
    {"agent, tables: leaf changes", tables_sites, 2000},
    {"agent, -g fp: walk", walk_once, 2000},
    {"agent, -g fp: sample into ring", sample_once, 2000},
    {"agent, -g fp: leaf changes", sample_sites, 2000},
    {"glibc backtrace()", glibc_backtrace, 50},
#ifdef HAVE_LIBUNWIND
    {"libunwind unw_backtrace()", libunwind_backtrace, 500},
    {"libunwind unw_step() loop", libunwind_step, 20},
#endif
};
enum { WAYS = sizeof ways / sizeof *ways };
static double t[WAYS][CHUNKS];
static int count[WAYS];

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

__attribute__((noinline)) static int measure(void) {
  for (int w = 0; w < WAYS; w++)
    count[w] = ways[w].f(ways[w].n);
  for (int c = 0; c < CHUNKS; c++)
    for (int w = 0; w < WAYS; w++) {
      double t0 = now_ns();
      ways[w].f(ways[w].n);
      t[w][c] = (now_ns() - t0) / ways[w].n;
    }
  return sampled();
}

__attribute__((noinline)) static int down(int n) {
  int r = n > 0 ? down(n - 1) : measure();
  __asm__ volatile("" ::: "memory");
  return r + 1;
}

static void *body(void *arg) {
  pthread_attr_t at;
  void *lo;
  size_t size;
  if (pthread_getattr_np(pthread_self(), &at) || pthread_attr_getstack(&at, &lo, &size) ||
      side_begin((uintptr_t)lo, (uintptr_t)lo + size, getauxval(AT_SYSINFO_EHDR)))
    exit(1);
  /* so that the walk's own count comes out as asked for */
  int base, depth = *(int *)arg;
  base = walk_once(1);
  down(depth - base - 2 > 0 ? depth - base - 2 : 0);
  return NULL;
}

int main(int argc, char **argv) {
  int depth = argc > 1 ? atoi(argv[1]) : 30;
  void *libc = dlopen("libc.so.6", RTLD_NOW);
  if (!libc || !(libc_backtrace = (int (*)(void **, int))dlsym(libc, "backtrace")))
    return 1;
  puts("ready"); /* everything is loaded: the other side makes the tables now */
  fflush(stdout);
  if (argc > 2 && getchar() != EOF) {
    int fd = open(argv[2], O_RDONLY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) return 1;
    region_bytes = (uint64_t)st.st_size;
    region = mmap(NULL, region_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (region == MAP_FAILED) return 1;
  }
  pthread_t th;
  if (pthread_create(&th, NULL, body, &depth) || pthread_join(th, NULL))
    return 1;
  for (int w = 0; w < WAYS; w++) {
    qsort(t[w], CHUNKS, sizeof **t, by_value);
    printf("%s|%d|%.2f|%.2f\n", ways[w].name, count[w], t[w][0], t[w][CHUNKS / 2]);
  }
  return 0;
}
