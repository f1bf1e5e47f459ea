/* signalburst: four threads wait for a condition; the first thread signals it 2,000 times while it holds their mutex, so that
 * only four signals wake a thread. Then a broadcast while they wait again, and 500 more that find all of them woken. */
#include "check.h"

enum { WAITERS = 4, BURST = 2000 };
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int waiting, round_, out;

static void *waiter(void *arg) {
  pthread_mutex_lock(&m);
  for (int r = 1; r <= 2; r++) {
    waiting++;
    while (round_ < r)
      CHECK_RC(pthread_cond_wait(&c, &m), 0);
    out++;
  }
  pthread_mutex_unlock(&m);
  return arg;
}

/* Returns with the mutex held, when every waiter is inside its wait: each counted itself while it held the mutex. */
static void all_wait(int n) {
  for (;;) {
    pthread_mutex_lock(&m);
    if (waiting == n)
      return;
    pthread_mutex_unlock(&m);
    usleep(1000);
  }
}

int main(void) {
  pthread_t t[WAITERS];
  for (int i = 0; i < WAITERS; i++)
    CHECK_RC(pthread_create(&t[i], NULL, waiter, NULL), 0);
  all_wait(WAITERS);
  round_ = 1;
  for (int i = 0; i < BURST; i++)
    CHECK_RC(pthread_cond_signal(&c), 0);
  pthread_mutex_unlock(&m);
  all_wait(2 * WAITERS);
  round_ = 2;
  for (int i = 0; i < BURST / 4; i++)
    CHECK_RC(pthread_cond_broadcast(&c), 0);
  pthread_mutex_unlock(&m);
  for (int i = 0; i < WAITERS; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(out == 2 * WAITERS);
  puts("ok");
  return 0;
}
