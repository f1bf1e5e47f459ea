//go:build ignore

/* hookcost: nanoseconds per malloc+free pair (32 bytes) and per uncontended lock+unlock pair, in chunks short
 * enough that most contain no tick of a sampler. Prints "kind min median mean" over the chunks; the mean is what a
 * program pays, the minimum is a hook with nothing to say. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CHUNKS = 1500, PAIRS = 20000 };

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
  return 0;
}
