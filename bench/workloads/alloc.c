/* alloc: two threads allocate and free 16 to 2,000 bytes twenty frames deep, 256 live at a time each. */
#include "workload.h"

enum { LIVE = 256 };
static long rounds;

NOINLINE static uint64_t churn(char **live, uint64_t x) {
  for (int i = 0; i < 64; i++) {
    x = workload_mix(x);
    unsigned k = (unsigned)(x >> 20) % LIVE;
    free(live[k]);
    live[k] = malloc(16 + (x >> 32) % 1984);
    if (!live[k])
      abort();
    live[k][0] = (char)x;
  }
  return x;
}

NOINLINE static uint64_t deep(int n, char **live, uint64_t x) {
  if (n == 0)
    return churn(live, x);
  return deep(n - 1, live, x) + 1;
}

static void *body(void *arg) {
  char *live[LIVE] = {0};
  uint64_t x = (uint64_t)(intptr_t)arg * 977 + 1;
  for (long i = 0; i < rounds; i++)
    x = deep(20, live, x | 1);
  for (int k = 0; k < LIVE; k++)
    free(live[k]);
  return (void *)(intptr_t)x;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 150000);
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
