/* writer.c: the replay's writing side for LTTng-UST, which has no Go. The same threads, pace, bursts, records and
 * timing as engine.go; see there for what they stand for. Reads its orders from stdin, writes what it measured to
 * stdout, both as lines of numbers.
 *
 * Built twice: with GETCPU_PLUGIN it is the library that tells LTTng-UST on which of the replay's cores a thread
 * runs, since the machine may have fewer. */
#define _GNU_SOURCE
#include <stdint.h>

#ifdef GETCPU_PLUGIN
#include <lttng/ust-getcpu.h>
extern __attribute__((weak)) int replay_core(void);
static int getcpu(void) { return replay_core ? replay_core() : 0; }
void lttng_ust_getcpu_plugin_init(void);
void lttng_ust_getcpu_plugin_init(void) { lttng_ust_getcpu_override(getcpu); }
#else

#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "provider.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CORES = 12, BURST = 15, BINS = 1024, MOST = 112 };

static _Thread_local int core_;
int replay_core(void);
int replay_core(void) { return core_; }

static double seconds, rate[CORES], ns_per_cycle, overhead;
static int threads, cpus;
static unsigned long late_after;
static uint8_t size_of[256];
static atomic_ulong stamp;
static pthread_barrier_t begin;
static struct timespec t0;

struct worker {
  pthread_t thread;
  int core;
  uint32_t name, seq;
  uint64_t random;
  uint32_t single[BINS], batch[BINS];
  uint64_t *late;
  unsigned late_count;
};

static inline uint64_t cycles(void) {
#if defined __x86_64__
  return __builtin_ia32_rdtsc();
#else
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
#endif
}

static double now(void) { /* since t0 */
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)(t.tv_sec - t0.tv_sec) + (double)(t.tv_nsec - t0.tv_nsec) / 1e9;
}

static uint64_t next_random(struct worker *w) {
  w->random ^= w->random << 13;
  w->random ^= w->random >> 7;
  w->random ^= w->random << 17;
  return w->random;
}

static double exponential(struct worker *w) { return -log(((double)(next_random(w) >> 11) + 1) / 9007199254740993.0); }

static uint32_t size(uint64_t st) { return size_of[st * 0x9e3779b97f4a7c15u >> 56]; }

static void encode(uint8_t *p, uint64_t st, uint32_t name, uint32_t seq) {
  memcpy(p, &st, 8);
  memcpy(p + 8, &name, 4);
  memcpy(p + 12, &seq, 4);
  for (uint64_t i = 16; i < size(st); i += 8) {
    uint64_t f = (st ^ i << 48) * 0x9e3779b97f4a7c15u;
    memcpy(p + i, &f, 8);
  }
}

static void count(uint32_t *bins, double ns, uint32_t n) {
  int i = (int)(log2(ns < 1 ? 1 : ns) * 32);
  bins[i < BINS ? i : BINS - 1] += n;
}

static double took(uint64_t from, uint64_t to) {
  double ns = (double)(to - from) * ns_per_cycle - overhead;
  return ns > 0 ? ns : 0;
}

static void is_late(struct worker *w, uint64_t st) {
  if (atomic_load(&stamp) <= st + late_after) return;
  if ((w->late_count & (w->late_count - 1)) == 0) /* room doubles */
    w->late = realloc(w->late, sizeof *w->late * (w->late_count ? w->late_count * 2 : 1));
  if (!w->late) abort();
  w->late[w->late_count++] = st;
}

static void *work(void *arg) {
  struct worker *w = arg;
  core_ = w->core;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(w->core % cpus, &set);
  sched_setaffinity(0, sizeof set, &set);
  pthread_barrier_wait(&begin);
  pthread_barrier_wait(&begin); /* t0 is set between the two */
  double r = rate[w->core] / threads, due = exponential(w) * (BURST + 1) / 2 / r;
  uint8_t bufs[BURST][MOST];
  for (unsigned n = 0; due < seconds; n++) {
    for (double wait; (wait = fmin(due, seconds) - now()) > 0;) {
      struct timespec ts = {(time_t)wait, (long)((wait - floor(wait)) * 1e9)};
      nanosleep(&ts, 0);
    }
    if (now() >= seconds) break;
    unsigned k = 1 + (unsigned)(next_random(w) % BURST);
    if (n % 2 == 0 && k >= 4) {
      uint64_t first = atomic_fetch_add(&stamp, k);
      for (unsigned i = 0; i < k; i++) encode(bufs[i], first + i, w->name, w->seq++);
      uint64_t c = cycles();
      for (unsigned i = 0; i < k; i++) lttng_ust_tracepoint(hbtrace_replay, record, bufs[i], size(first + i));
      count(w->batch, took(c, cycles()) / k, k);
      for (unsigned i = 0; i < k; i++) is_late(w, first + i);
    } else {
      for (unsigned i = 0; i < k; i++) {
        uint64_t st = atomic_fetch_add(&stamp, 1);
        encode(bufs[0], st, w->name, w->seq++);
        uint64_t c = cycles();
        lttng_ust_tracepoint(hbtrace_replay, record, bufs[0], size(st));
        count(w->single, took(c, cycles()), 1);
        is_late(w, st);
      }
    }
    due += exponential(w) * k / r;
  }
  return 0;
}

static void calibrate(void) {
  struct timespec a, b, nap = {0, 50000000};
  clock_gettime(CLOCK_MONOTONIC, &a);
  uint64_t c = cycles();
  nanosleep(&nap, 0);
  c = cycles() - c;
  clock_gettime(CLOCK_MONOTONIC, &b);
  ns_per_cycle = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / (double)c;
  uint64_t least = ~0ull;
  for (int i = 0; i < 10000; i++) {
    uint64_t x = cycles(), d = cycles() - x;
    if (d < least) least = d;
  }
  overhead = (double)least * ns_per_cycle;
}

int main(void) {
  /* seconds, threads a core, processors, late after, 12 rates, 256 sizes */
  if (scanf("%lf %d %d %lu", &seconds, &threads, &cpus, &late_after) != 4) return 2;
  for (int i = 0; i < CORES; i++)
    if (scanf("%lf", &rate[i]) != 1) return 2;
  for (int i = 0; i < 256; i++) {
    unsigned n;
    if (scanf("%u", &n) != 1 || n > MOST) return 2;
    size_of[i] = (uint8_t)n;
  }
  calibrate();
  int n = threads * CORES;
  struct worker *all = calloc((size_t)n, sizeof *all);
  if (!all) return 3;
  pthread_barrier_init(&begin, 0, (unsigned)n + 1);
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  for (int i = 0; i < n; i++) {
    all[i].core = i / threads;
    all[i].name = (uint32_t)i;
    all[i].random = 88172645463325252u + (uint64_t)i * 0x9e3779b97f4a7c15u;
    if (pthread_create(&all[i].thread, &small, work, &all[i])) return 4;
  }
  pthread_barrier_wait(&begin);
  clock_gettime(CLOCK_MONOTONIC, &t0);
  pthread_barrier_wait(&begin);
  for (int i = 0; i < n; i++) pthread_join(all[i].thread, 0);
  printf("stamps %lu 0\n", atomic_load(&stamp));
  for (int b = 0; b < BINS; b++) {
    unsigned long s = 0, m = 0;
    for (int i = 0; i < n; i++) s += all[i].single[b], m += all[i].batch[b];
    if (s) printf("single %d %lu\n", b, s);
    if (m) printf("batch %d %lu\n", b, m);
  }
  for (int i = 0; i < n; i++)
    for (unsigned k = 0; k < all[i].late_count; k++) printf("late %lu 0\n", all[i].late[k]);
  return 0;
}
#endif
