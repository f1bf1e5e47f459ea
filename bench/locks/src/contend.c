/* contend: two threads on two processors pass an adaptive mutex to and fro: some 1 us under it, half of that outside, so that it is mostly
 * taken when they come and rarely for long enough to sleep. */
#include "../../workloads/workload.h"
#include <sched.h>

static long rounds;
static pthread_mutex_t m;
static uint64_t shared = 1;

NOINLINE static uint64_t work(uint64_t x, int n) {
  for (int i = 0; i < n; i++) x = workload_mix(x);
  return x;
}
NOINLINE static void under_lock(void) {
  pthread_mutex_lock(&m);
  shared = work(shared, 500);
  pthread_mutex_unlock(&m);
}
NOINLINE static uint64_t deep(uint64_t x, int depth) {
  if (depth) return deep(x, depth - 1) + 1;
  x = work(x, 250);
  under_lock();
  return x;
}
static void *body(void *arg) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)(intptr_t)arg % 2, &set);
  sched_setaffinity(0, sizeof set, &set); /* fails on one processor: then they share it */
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (long i = 0; i < rounds; i++) x = deep(x, 10);
  return (void *)(intptr_t)x;
}
int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 400000);
  pthread_mutexattr_t a;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
  pthread_mutex_init(&m, &a);
  pthread_t t[2];
  uint64_t sum = 0;
  for (intptr_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, body, (void *)i);
  for (int i = 0; i < 2; i++) {
    void *r;
    pthread_join(t[i], &r);
    sum += (uint64_t)(intptr_t)r;
  }
  return workload_end(sum + shared);
}
