/* uncontended: two threads, each with mutexes of its own, a lock and an unlock for every 30 ns or so of work (bench/hookcost
 * measures the pair alone). */
#include "workload.h"

static long rounds;

NOINLINE static void update(pthread_mutex_t *m, uint64_t *x) {
  pthread_mutex_lock(m);
  for (int i = 0; i < 16; i++)
    *x = workload_mix(*x);
  pthread_mutex_unlock(m);
}

static void *body(void *arg) {
  pthread_mutex_t m[4];
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (int i = 0; i < 4; i++)
    pthread_mutex_init(&m[i], NULL);
  for (long i = 0; i < rounds; i++)
    update(&m[i & 3], &x);
  return (void *)(intptr_t)x;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 25000000);
  pthread_t t[2];
  uint64_t sum = 0;
  for (intptr_t i = 0; i < 2; i++)
    pthread_create(&t[i], NULL, body, (void *)i);
  for (int i = 0; i < 2; i++) {
    void *r;
    pthread_join(t[i], &r);
    sum += (uint64_t)(intptr_t)r;
  }
  return workload_end(sum);
}
