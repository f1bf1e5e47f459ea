/* barrier: six threads, 200 rounds, one serial thread in each; joins with time-outs. */
#include "check.h"
#include <semaphore.h>

static pthread_barrier_t bar;
static sem_t may_end;
static int serial, round_no[6];

static void *body(void *arg) {
  int me = (int)(intptr_t)arg;
  for (int i = 0; i < 200; i++) {
    round_no[me] = i;
    if (pthread_barrier_wait(&bar) == PTHREAD_BARRIER_SERIAL_THREAD)
      __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
    for (int j = 0; j < 6; j++)
      CHECK(__atomic_load_n(&round_no[j], __ATOMIC_RELAXED) == i);
    int rc = pthread_barrier_wait(&bar);
    CHECK(rc == 0 || rc == PTHREAD_BARRIER_SERIAL_THREAD);
  }
  return (void *)(intptr_t)(me + 10);
}

static void *slow(void *arg) {
  CHECK(sem_wait(&may_end) == 0);
  return arg;
}

int main(void) {
  CHECK_RC(pthread_barrier_init(&bar, NULL, 6), 0);
  pthread_t t[6];
  for (intptr_t i = 0; i < 6; i++)
    CHECK_RC(pthread_create(&t[i], NULL, body, (void *)i), 0);
  for (int i = 0; i < 6; i++) {
    void *ret;
    CHECK_RC(pthread_join(t[i], &ret), 0);
    CHECK(ret == (void *)(intptr_t)(i + 10));
  }
  CHECK(serial == 200);
  CHECK(sem_init(&may_end, 0, 0) == 0);
  CHECK_RC(pthread_create(&t[0], NULL, slow, &serial), 0);
  struct timespec at = after_ns(CLOCK_REALTIME, 10000000);
  CHECK_RC(pthread_timedjoin_np(t[0], NULL, &at), ETIMEDOUT);
  at = after_ns(CLOCK_MONOTONIC, 10000000);
  CHECK_RC(pthread_clockjoin_np(t[0], NULL, CLOCK_MONOTONIC, &at), ETIMEDOUT);
  CHECK_RC(pthread_tryjoin_np(t[0], NULL), EBUSY);
  CHECK(sem_post(&may_end) == 0);
  void *ret;
  CHECK_RC(pthread_join(t[0], &ret), 0);
  CHECK(ret == &serial);
  CHECK_RC(pthread_join(pthread_self(), NULL), EDEADLK);
  puts("barrier ok");
  return 0;
}
