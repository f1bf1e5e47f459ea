/* sem: semaphores: hand-over, trywait, time-outs, and EINTR exactly when the program's own signal says so. */
#include "check.h"
#include <semaphore.h>
#include <signal.h>

static sem_t s, ready, never;
static long sum;
static pid_t waiter;

static void *consumer(void *arg) {
  for (int i = 0; i < 2000; i++) {
    while (sem_wait(&s) != 0)
      CHECK(errno == 0); /* nobody sends signals here: EINTR would be ours */
    __atomic_add_fetch(&sum, 1, __ATOMIC_RELAXED);
  }
  return arg;
}

static void nothing(int sig) { (void)sig; }

static void *interrupted(void *arg) {
  int *eintr = arg;
  for (int i = 0; i < 30; i++) {
    burn_ns(500000);
    sem_post(&ready);
    int rc = sem_wait(&never);
    CHECK(rc == -1 && errno == EINTR);
    ++*eintr;
  }
  return NULL;
}

static void *restarted(void *arg) {
  waiter = gettid();
  sem_post(&ready);
  CHECK(sem_wait(&s) == 0); /* SA_RESTART: goes on waiting until posted */
  return arg;
}

int main(void) {
  CHECK(sem_init(&s, 0, 0) == 0 && sem_init(&ready, 0, 0) == 0 && sem_init(&never, 0, 0) == 0);
  pthread_t t[3];
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_create(&t[i], NULL, consumer, NULL), 0);
  for (int i = 0; i < 6000; i++) {
    CHECK(sem_post(&s) == 0);
    if (i % 100 == 0)
      burn_ns(200000);
  }
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(sum == 6000);
  CHECK(sem_trywait(&s) == -1 && errno == EAGAIN);
  for (int i = 0; i < 10; i++) {
    burn_ns(1000000);
    struct timespec at = after_ns(CLOCK_REALTIME, 4000000);
    CHECK(sem_timedwait(&s, &at) == -1 && errno == ETIMEDOUT);
    CHECK(clock_ns(CLOCK_REALTIME) >= at.tv_sec * 1000000000ll + at.tv_nsec);
    at = after_ns(CLOCK_MONOTONIC, 4000000);
    CHECK(sem_clockwait(&s, CLOCK_MONOTONIC, &at) == -1 && errno == ETIMEDOUT);
    CHECK(mono_ns() >= at.tv_sec * 1000000000ll + at.tv_nsec);
  }
  struct timespec bad = {0, 2000000000};
  CHECK(sem_timedwait(&s, &bad) == -1 && errno == EINVAL);

  struct sigaction sa = {.sa_handler = nothing};
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  int eintr = 0;
  CHECK_RC(pthread_create(&t[0], NULL, interrupted, &eintr), 0);
  /* A signal that comes before the thread has blocked interrupts nothing, so signals are offered until it has
   * ended; each of its 30 waits ends by one of them. */
  while (pthread_tryjoin_np(t[0], NULL) == EBUSY) {
    usleep(2000);
    pthread_kill(t[0], SIGUSR1);
  }
  CHECK(eintr == 30);

  sa.sa_flags = SA_RESTART;
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  while (sem_trywait(&ready) == 0)
    ;
  CHECK_RC(pthread_create(&t[0], NULL, restarted, NULL), 0);
  CHECK(sem_wait(&ready) == 0);
  for (int i = 0; i < 10; i++) {
    await_asleep(waiter);
    CHECK_RC(pthread_kill(t[0], SIGUSR1), 0);
  }
  CHECK(sem_post(&s) == 0);
  CHECK_RC(pthread_join(t[0], NULL), 0);
  puts("sem ok");
  return 0;
}
