/* workload.h: what every workload of bench/overhead shares: its size from argv[1], its own CPU time and wall time
 * written to the file that WORKLOAD_RESULT names, so that nobody else's time is in them. */
#ifndef WORKLOAD_H
#define WORKLOAD_H
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static int64_t workload_begun;

static int64_t workload_now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Returns the number of rounds asked for. */
static long workload_begin(int argc, char **argv, long rounds) {
  workload_begun = workload_now_ns();
  return argc > 1 ? atol(argv[1]) : rounds;
}

/* Writes "user_ns system_ns wall_ns voluntary involuntary" and returns main's status. */
static int workload_end(uint64_t checksum) {
  int64_t wall = workload_now_ns() - workload_begun;
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  printf("checksum %llx\n", (unsigned long long)checksum);
  const char *path = getenv("WORKLOAD_RESULT");
  if (!path)
    return 0;
  FILE *f = fopen(path, "w");
  if (!f) {
    perror(path);
    return 1;
  }
  fprintf(f, "%lld %lld %lld %ld %ld\n", (long long)u.ru_utime.tv_sec * 1000000000 + u.ru_utime.tv_usec * 1000,
          (long long)u.ru_stime.tv_sec * 1000000000 + u.ru_stime.tv_usec * 1000, (long long)wall, u.ru_nvcsw, u.ru_nivcsw);
  return fclose(f) != 0;
}

static inline uint64_t workload_mix(uint64_t x) {
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}
#endif
