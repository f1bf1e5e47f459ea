/* trylock: results and timing of trylock, timedlock and clocklock on mutexes and rwlocks. */
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
enum { MS = 1000000, WAIT = 15 * MS };

#define TIMES_OUT(clock, call)                     \
  do {                                             \
    struct timespec at = after_ns(clock, WAIT);    \
    int64_t t0 = clock_ns(clock);                  \
    CHECK_RC(call, ETIMEDOUT);                     \
    CHECK(clock_ns(clock) - t0 >= WAIT - 1 * MS);  \
  } while (0)

static void *others(void *arg) {
  struct timespec bad = {0, 1000000000};
  CHECK_RC(pthread_mutex_trylock(&m), EBUSY);
  for (int i = 0; i < 5; i++) {
    burn_ns(2 * MS);
    TIMES_OUT(CLOCK_REALTIME, pthread_mutex_timedlock(&m, &at));
    TIMES_OUT(CLOCK_MONOTONIC, pthread_mutex_clocklock(&m, CLOCK_MONOTONIC, &at));
    TIMES_OUT(CLOCK_REALTIME, pthread_rwlock_timedrdlock(&rw, &at));
    TIMES_OUT(CLOCK_REALTIME, pthread_rwlock_timedwrlock(&rw, &at));
    TIMES_OUT(CLOCK_MONOTONIC, pthread_rwlock_clockrdlock(&rw, CLOCK_MONOTONIC, &at));
    TIMES_OUT(CLOCK_MONOTONIC, pthread_rwlock_clockwrlock(&rw, CLOCK_MONOTONIC, &at));
  }
  CHECK_RC(pthread_mutex_timedlock(&m, &bad), EINVAL);
  CHECK_RC(pthread_mutex_clocklock(&m, CLOCK_PROCESS_CPUTIME_ID, &bad), EINVAL);
  struct timespec past = {1, 0};
  CHECK_RC(pthread_mutex_timedlock(&m, &past), ETIMEDOUT);
  CHECK_RC(pthread_rwlock_tryrdlock(&rw), EBUSY);
  CHECK_RC(pthread_rwlock_trywrlock(&rw), EBUSY);
  return arg;
}

static void *late_unlock(void *arg) {
  CHECK_RC(pthread_mutex_lock(arg), 0);
  usleep(20000);
  CHECK_RC(pthread_mutex_unlock(arg), 0);
  return NULL;
}

int main(void) {
  CHECK_RC(pthread_mutex_trylock(&m), 0);
  CHECK_RC(pthread_rwlock_wrlock(&rw), 0);
  CHECK_RC(pthread_rwlock_wrlock(&rw), EDEADLK);
  CHECK_RC(pthread_rwlock_rdlock(&rw), EDEADLK);
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, others, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  CHECK_RC(pthread_mutex_unlock(&m), 0);
  CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  /* a timed lock that is granted in time */
  for (int i = 0; i < 5; i++) {
    CHECK_RC(pthread_create(&t, NULL, late_unlock, &m), 0);
    usleep(5000);
    struct timespec at = after_ns(CLOCK_REALTIME, 60000000000);
    CHECK_RC(pthread_mutex_timedlock(&m, &at), 0);
    CHECK_RC(pthread_mutex_unlock(&m), 0);
    CHECK_RC(pthread_join(t, NULL), 0);
  }
  pthread_mutexattr_t at;
  pthread_mutexattr_init(&at);
  pthread_mutexattr_settype(&at, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_t e;
  CHECK_RC(pthread_mutex_init(&e, &at), 0);
  CHECK_RC(pthread_mutex_lock(&e), 0);
  struct timespec soon = after_ns(CLOCK_REALTIME, WAIT);
  CHECK_RC(pthread_mutex_timedlock(&e, &soon), EDEADLK);
  CHECK_RC(pthread_mutex_unlock(&e), 0);
  puts("trylock ok");
  return 0;
}
