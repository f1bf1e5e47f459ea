/* cpu: two threads of recursion and arithmetic that pass no hook at all. */
#include "workload.h"

static long rounds;

NOINLINE static uint64_t fib(uint64_t n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

NOINLINE static uint64_t mix(uint64_t x) {
  for (int i = 0; i < 200000; i++)
    x = workload_mix(x);
  return x;
}

static void *body(void *arg) {
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (long i = 0; i < rounds; i++)
    x = mix(x) + fib(24);
  return (void *)(intptr_t)x;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 1300);
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
