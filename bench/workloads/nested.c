/* nested: a bounded queue with two producers and two consumers, then two nested locks, and a reporter. */
#include "workload.h"
static long rounds;
static pthread_mutex_t q = PTHREAD_MUTEX_INITIALIZER, outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t full = PTHREAD_COND_INITIALIZER, empty = PTHREAD_COND_INITIALIZER;
enum { ROOM = 64 };
static uint64_t items[ROOM], sum, total;
static int have, at, done, producers = 2;
static volatile int stop;
NOINLINE static uint64_t work(uint64_t x, int n) { for (int i = 0; i < n; i++) x = workload_mix(x); return x; }
NOINLINE static void *produce(void *arg) {
  uint64_t x = (uint64_t)(intptr_t)arg + 1;
  for (long i = 0; i < rounds; i++) {
    x = work(x, 100);
    pthread_mutex_lock(&q);
    while (have == ROOM) pthread_cond_wait(&full, &q);
    items[(at + have++) % ROOM] = x;
    pthread_cond_signal(&empty);
    pthread_mutex_unlock(&q);
  }
  pthread_mutex_lock(&q);
  if (--producers == 0) done = 1, pthread_cond_broadcast(&empty);
  pthread_mutex_unlock(&q);
  return NULL;
}
NOINLINE static void *consume(void *arg) {
  for (;;) {
    pthread_mutex_lock(&q);
    while (!have && !done) pthread_cond_wait(&empty, &q);
    if (!have) { pthread_mutex_unlock(&q); return arg; }
    uint64_t x = items[at];
    at = (at + 1) % ROOM, have--;
    pthread_cond_signal(&full);
    pthread_mutex_unlock(&q);
    x = work(x, 100);
    pthread_mutex_lock(&outer);
    sum ^= work(x, 30);
    pthread_mutex_lock(&inner);
    total += work(x, 30) != 0;
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&outer);
  }
}
NOINLINE static void *report(void *arg) {
  while (!stop) {
    pthread_mutex_lock(&outer);
    pthread_mutex_lock(&inner);
    work(total, 1000);
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&outer);
    struct timespec ts = {0, 1000000};
    nanosleep(&ts, NULL);
  }
  return arg;
}
int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 300000);
  pthread_t t[5];
  for (intptr_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, produce, (void *)i);
  for (intptr_t i = 2; i < 4; i++) pthread_create(&t[i], NULL, consume, NULL);
  pthread_create(&t[4], NULL, report, NULL);
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  stop = 1;
  pthread_join(t[4], NULL);
  return workload_end(sum + total);
}
