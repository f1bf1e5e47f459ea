/* condvar: ping-pong, broadcast, time-outs that are neither early nor wrong, both clocks, C11 forms. */
#include "check.h"
#include <threads.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int turn, woken, go;

static void *pong(void *arg) {
  int me = (int)(intptr_t)arg;
  for (int i = 0; i < 5000; i++) {
    pthread_mutex_lock(&m);
    while (turn % 2 != me)
      CHECK_RC(pthread_cond_wait(&c, &m), 0);
    turn++;
    pthread_cond_signal(&c);
    pthread_mutex_unlock(&m);
  }
  return NULL;
}

static void *all(void *arg) {
  pthread_mutex_lock(&m);
  while (!go)
    CHECK_RC(pthread_cond_wait(&c, &m), 0);
  woken++;
  pthread_mutex_unlock(&m);
  return arg;
}

static mtx_t cm;
static cnd_t cc;
static int c11;
static int c11_body(void *arg) {
  (void)arg;
  mtx_lock(&cm);
  while (!c11)
    cnd_wait(&cc, &cm);
  mtx_unlock(&cm);
  return 31;
}

int main(void) {
  pthread_t t[8];
  for (intptr_t i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&t[i], NULL, pong, (void *)i), 0);
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(turn == 10000);
  for (int i = 0; i < 8; i++)
    CHECK_RC(pthread_create(&t[i], NULL, all, NULL), 0);
  usleep(5000);
  pthread_mutex_lock(&m);
  go = 1;
  CHECK_RC(pthread_cond_broadcast(&c), 0);
  pthread_mutex_unlock(&m);
  for (int i = 0; i < 8; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(woken == 8);

  pthread_condattr_t at;
  pthread_condattr_init(&at);
  CHECK_RC(pthread_condattr_setclock(&at, CLOCK_MONOTONIC), 0);
  pthread_cond_t mono;
  CHECK_RC(pthread_cond_init(&mono, &at), 0);
  pthread_mutex_lock(&m);
  for (int i = 0; i < 10; i++) {
    burn_ns(1000000);
    struct timespec ts = after_ns(CLOCK_REALTIME, 5000000);
    int rc;
    while ((rc = pthread_cond_timedwait(&c, &m, &ts)) == 0)
      ; /* spurious wake-ups are allowed, other results are not */
    CHECK_RC(rc, ETIMEDOUT);
    CHECK(clock_ns(CLOCK_REALTIME) >= ts.tv_sec * 1000000000ll + ts.tv_nsec);
    ts = after_ns(CLOCK_MONOTONIC, 5000000);
    while ((rc = pthread_cond_timedwait(&mono, &m, &ts)) == 0)
      ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK(mono_ns() >= ts.tv_sec * 1000000000ll + ts.tv_nsec);
    ts = after_ns(CLOCK_MONOTONIC, 5000000);
    while ((rc = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &ts)) == 0)
      ;
    CHECK_RC(rc, ETIMEDOUT);
    CHECK(mono_ns() >= ts.tv_sec * 1000000000ll + ts.tv_nsec);
  }
  struct timespec bad = {0, -1};
  CHECK_RC(pthread_cond_timedwait(&c, &m, &bad), EINVAL);
  pthread_mutex_unlock(&m);

  CHECK(mtx_init(&cm, mtx_timed) == thrd_success && cnd_init(&cc) == thrd_success);
  thrd_t th;
  CHECK(thrd_create(&th, c11_body, NULL) == thrd_success);
  usleep(2000);
  mtx_lock(&cm);
  c11 = 1;
  cnd_signal(&cc);
  mtx_unlock(&cm);
  int res;
  CHECK(thrd_join(th, &res) == thrd_success && res == 31);
  puts("condvar ok");
  return 0;
}
