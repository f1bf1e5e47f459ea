/* churn: threads that live for some 20 us: four at a time, one allocation and one lock each. */
#include "workload.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static uint64_t shared = 1;

static void *body(void *arg) {
  char *p = malloc(500);
  p[0] = 1;
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (int i = 0; i < 4000; i++)
    x = workload_mix(x);
  pthread_mutex_lock(&m);
  shared += (x & 1) + (uint64_t)p[0];
  pthread_mutex_unlock(&m);
  free(p);
  return NULL;
}

int main(int argc, char **argv) {
  long rounds = workload_begin(argc, argv, 25000);
  for (long i = 0; i < rounds; i += 4) {
    pthread_t t[4];
    for (intptr_t k = 0; k < 4; k++)
      if (pthread_create(&t[k], NULL, body, (void *)(i + k)))
        return 1;
    for (int k = 0; k < 4; k++)
      pthread_join(t[k], NULL);
  }
  return workload_end(shared);
}
