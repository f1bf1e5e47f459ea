/* idle: 2,000 threads of which two run; of the others half wait for a condition and half sleep for half a second, again
 * and again. What the recorder costs here is the price of looking at threads that do nothing. */
#include "workload.h"

enum { IDLE = 1998, BUSY = 2 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int stop;
static long rounds;

static void *idle(void *arg) {
  if ((intptr_t)arg & 1) {
    pthread_mutex_lock(&m);
    while (!stop)
      pthread_cond_wait(&c, &m);
    pthread_mutex_unlock(&m);
    return NULL;
  }
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
    usleep(500000);
  return NULL;
}

static void *busy(void *arg) {
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (long i = 0; i < rounds; i++)
    for (int k = 0; k < 1000000; k++)
      x = workload_mix(x);
  return (void *)(intptr_t)x;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 1000);
  static pthread_t t[IDLE + BUSY];
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 65536);
  for (intptr_t i = 0; i < IDLE + BUSY; i++)
    if (pthread_create(&t[i], &small, i < IDLE ? idle : busy, (void *)i))
      return 1;
  uint64_t sum = 0;
  for (int i = IDLE + BUSY; i-- > 0;) { /* the busy ones first */
    if (i == IDLE - 1) {
      pthread_mutex_lock(&m);
      __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
      pthread_cond_broadcast(&c);
      pthread_mutex_unlock(&m);
    }
    void *r;
    pthread_join(t[i], &r);
    sum += (uint64_t)(intptr_t)r;
  }
  return workload_end(sum);
}
