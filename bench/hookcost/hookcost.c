//go:build ignore

/* hookcost: nanoseconds per malloc+free pair (32 bytes) and per uncontended lock+unlock pair, in chunks short
 * enough that most contain no tick of a sampler. Prints "kind min median mean" over the chunks; the mean is what a
 * program pays, the minimum is a hook with nothing to say. Then, 30 calls deep and in chunks of few pairs, lock+unlock of a
 * lock that was waited for a moment ago ("hot": a profiler may want to know where it is taken), and the same while another
 * thread waits for a lock of the same bucket of hbtrace's tables ("waited": every unlock seems to let somebody go). */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS = 1500, PAIRS = 20000, FEW = 100, DEPTH = 30 };

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void malloc_pairs(void) {
  for (int i = 0; i < PAIRS; i++) {
    void *p = malloc(32);
    __asm__ volatile("" : "+r"(p) : : "memory");
    free(p);
  }
}

__attribute__((noinline)) static void lock_pairs(void) {
  for (int i = 0; i < PAIRS; i++) {
    pthread_mutex_lock(&m);
    __asm__ volatile("" : : : "memory");
    pthread_mutex_unlock(&m);
  }
}

static void measure(const char *kind, void (*pairs)(void)) {
  static double t[CHUNKS];
  double sum = 0;
  for (int i = 0; i < CHUNKS / 10; i++)
    pairs();
  for (int i = 0; i < CHUNKS; i++) {
    double t0 = now_ns();
    pairs();
    t[i] = (now_ns() - t0) / PAIRS;
    sum += t[i];
  }
  qsort(t, CHUNKS, sizeof *t, by_value);
  printf("%s %.3f %.3f %.3f\n", kind, t[0], t[CHUNKS / 2], sum / CHUNKS);
}

/* A few pairs, deep down; with a pause between chunks, since what is expensive is rationed by the millisecond. */
static double deep;
__attribute__((noinline)) static void few_pairs(int depth) {
  if (depth > 0) {
    few_pairs(depth - 1);
    __asm__ volatile("");
    return;
  }
  double t0 = now_ns();
  for (int i = 0; i < FEW; i++) {
    pthread_mutex_lock(&m);
    __asm__ volatile("" : : : "memory");
    pthread_mutex_unlock(&m);
  }
  deep = (now_ns() - t0) / FEW;
}

static void measure_few(const char *kind) {
  enum { N = 300 };
  static double t[N];
  double sum = 0;
  for (int i = 0; i < N; i++) {
    usleep(1500);
    few_pairs(DEPTH);
    sum += t[i] = deep;
  }
  qsort(t, N, sizeof *t, by_value);
  printf("%s %.3f %.3f %.3f\n", kind, t[0], t[N / 2], sum / N);
}

static void *hold(void *arg) {
  pthread_mutex_lock(&m);
  __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
  usleep(20000);
  pthread_mutex_unlock(&m);
  return NULL;
}

/* A lock in m's bucket of hooks/wait.h. */
static unsigned bucket(const void *p) { return (unsigned)((uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15ull >> 52); }
static pthread_mutex_t pool[1 << 16], *same;
static void *wait_for_same(void *arg) {
  pthread_mutex_lock(same);
  pthread_mutex_unlock(same);
  return arg;
}

static void *idle(void *arg) { return arg; }

int main(int argc, char **argv) {
  if (argc > 1) { /* the processor to stay on */
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)atoi(argv[1]), &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  pthread_t t; /* glibc's single-threaded short cuts are not what threaded programs pay */
  if (pthread_create(&t, NULL, idle, NULL) || pthread_join(t, NULL))
    return 1;
  measure("malloc+free", malloc_pairs);
  measure("lock+unlock", lock_pairs);
  measure_few("deep");
  int held = 0;
  if (pthread_create(&t, NULL, hold, &held)) return 1;
  while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE)) usleep(100);
  pthread_mutex_lock(&m);
  pthread_mutex_unlock(&m);
  pthread_join(t, NULL);
  measure_few("hot");
  for (size_t i = 0; i < sizeof pool / sizeof *pool && !same; i++)
    if (bucket(&pool[i]) == bucket(&m)) same = &pool[i];
  if (!same) return 0;
  pthread_mutex_lock(same);
  if (pthread_create(&t, NULL, wait_for_same, NULL)) return 1;
  usleep(50000);
  measure_few("waited");
  pthread_mutex_unlock(same);
  pthread_join(t, NULL);
  return 0;
}
