/* badtimes: times and clocks that the C library refuses, on locks that are free and on such as are taken. */
#include "check.h"
#include <limits.h>
#include <semaphore.h>

int main(void) {
  pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  sem_t s;
  CHECK(sem_init(&s, 0, 1) == 0);
  long bad[] = {-1, 1000000000, 1000000001, LONG_MAX, LONG_MIN};
  for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
    struct timespec t = {after_ns(CLOCK_REALTIME, 1000000000).tv_sec, bad[i]};
    printf("%ld: %d %d", bad[i], pthread_rwlock_timedrdlock(&l, &t), pthread_rwlock_timedwrlock(&l, &t));
    printf(" %d %d", pthread_rwlock_clockrdlock(&l, CLOCK_MONOTONIC, &t), pthread_rwlock_clockwrlock(&l, CLOCK_REALTIME, &t));
    CHECK_RC(pthread_rwlock_trywrlock(&l), 0); /* nobody has taken it */
    CHECK_RC(pthread_rwlock_unlock(&l), 0);
    printf(" %d", pthread_mutex_timedlock(&m, &t));
    pthread_mutex_trylock(&m);
    CHECK_RC(pthread_mutex_unlock(&m), 0);
    printf(" %d\n", sem_timedwait(&s, &t));
    int value;
    CHECK(sem_getvalue(&s, &value) == 0);
    if (value == 0)
      CHECK(sem_post(&s) == 0);
  }
  struct timespec t = after_ns(CLOCK_REALTIME, 1000000000);
  clockid_t clocks[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, 1000, -1};
  for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
    printf("clock %d: %d %d", clocks[i], pthread_rwlock_clockrdlock(&l, clocks[i], &t), pthread_rwlock_clockwrlock(&l, clocks[i], &t));
    CHECK_RC(pthread_rwlock_trywrlock(&l), 0);
    CHECK_RC(pthread_rwlock_unlock(&l), 0);
    printf(" %d\n", pthread_mutex_clocklock(&m, clocks[i], &t));
    pthread_mutex_trylock(&m);
    CHECK_RC(pthread_mutex_unlock(&m), 0);
  }
  struct timespec past = {-5, 0}; /* over, and free: taken */
  CHECK_RC(pthread_rwlock_timedwrlock(&l, &past), 0);
  CHECK_RC(pthread_rwlock_timedrdlock(&l, &past), EDEADLK);
  CHECK_RC(pthread_rwlock_unlock(&l), 0);
  puts("badtimes ok");
  return 0;
}
