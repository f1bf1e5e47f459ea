/* contended: four threads, half of them on each of two processors, share one mutex: about 2 us of work under it,
 * about 4 us outside. */
#include "workload.h"
#include <sched.h>

enum { THREADS = 4 };
static long rounds;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static uint64_t shared = 1;

NOINLINE static uint64_t work(uint64_t x, int n) {
  for (int i = 0; i < n; i++)
    x = workload_mix(x);
  return x;
}

NOINLINE static void under_lock(void) {
  pthread_mutex_lock(&m);
  shared = work(shared, 1000);
  pthread_mutex_unlock(&m);
}

static void *body(void *arg) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)(intptr_t)arg % 2, &set);
  sched_setaffinity(0, sizeof set, &set); /* fails on one processor: then they share it */
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (long i = 0; i < rounds; i++) {
    x = work(x, 2000);
    under_lock();
  }
  return (void *)(intptr_t)x;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 60000);
  pthread_t t[THREADS];
  uint64_t sum = 0;
  for (intptr_t i = 0; i < THREADS; i++)
    pthread_create(&t[i], NULL, body, (void *)i);
  for (int i = 0; i < THREADS; i++) {
    void *r;
    pthread_join(t[i], &r);
    sum += (uint64_t)(intptr_t)r;
  }
  return workload_end(sum + shared);
}
