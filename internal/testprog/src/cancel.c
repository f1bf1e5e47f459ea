/* cancel: pthread_cancel of threads that are blocked in wrapped calls; cleanup handlers must run, once, with
 * the mutex held where POSIX says so; a disabled or late cancel must not end the call. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t never;
static int pipefd[2];
static int cleaned, sent;
static pid_t entered; /* who is about to call what it is to be cancelled in */

static void note(void *arg) {
  cleaned++;
  if (arg)
    CHECK_RC(pthread_mutex_unlock(arg), 0); /* errors if cond_wait did not take it again */
}

static void enter(void) { __atomic_store_n(&entered, gettid(), __ATOMIC_RELEASE); }

#define BLOCKER(name, arg, before, call)  \
  static void *name(void *unused) {       \
    (void)unused;                         \
    burn_ns(3000000);                     \
    before;                               \
    pthread_cleanup_push(note, arg);      \
    enter();                              \
    call;                                 \
    pthread_cleanup_pop(1);               \
    return (void *)1;                     \
  }

static char buf[8];
static struct epoll_event ev;
static int ep;
BLOCKER(in_read, NULL, , (void)!read(pipefd[0], buf, sizeof buf))
BLOCKER(in_poll, NULL, , poll(NULL, 0, -1))
BLOCKER(in_select, NULL, , select(0, NULL, NULL, NULL, NULL))
BLOCKER(in_epoll, NULL, , epoll_wait(ep, &ev, 1, -1))
BLOCKER(in_sleep, NULL, , sleep(1000))
BLOCKER(in_nanosleep, NULL, , nanosleep(&(struct timespec){1000, 0}, NULL))
BLOCKER(in_sem, NULL, , sem_wait(&never))
BLOCKER(in_cond, &lock, pthread_mutex_lock(&lock), for (;;) pthread_cond_wait(&cond, &lock))
BLOCKER(in_timedcond, &lock, pthread_mutex_lock(&lock),
        struct timespec at = after_ns(CLOCK_REALTIME, 1000000000000); for (;;)
            pthread_cond_timedwait(&cond, &lock, &at))

static void *for_ever(void *unused) {
  (void)!read(pipefd[0], buf, sizeof buf);
  return unused;
}

static void *in_join(void *unused) {
  (void)unused;
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, for_ever, NULL), 0);
  pthread_cleanup_push(note, NULL);
  enter();
  int rc = pthread_join(t, NULL); /* the cancel ends the join, the inner thread stays */
  (void)rc;
  pthread_cleanup_pop(1);
  return (void *)1;
}

static void *disabled(void *unused) {
  (void)unused;
  int old;
  CHECK_RC(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old), 0);
  enter();
  CHECK(poll(NULL, 0, 30) == 0);
  CHECK(usleep(5000) == 0);
  while (!__atomic_load_n(&sent, __ATOMIC_ACQUIRE)) /* whoever cancels may be late */
    CHECK(usleep(100) == 0);
  CHECK_RC(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL), 0);
  pthread_cleanup_push(note, NULL);
  pthread_testcancel();
  pthread_cleanup_pop(0);
  return (void *)1;
}

static void *mutex_is_no_point(void *unused) {
  (void)unused;
  enter();
  CHECK_RC(pthread_mutex_lock(&lock), 0); /* not a cancellation point: must take it and go on */
  CHECK_RC(pthread_mutex_unlock(&lock), 0);
  free(malloc(100));
  pthread_cleanup_push(note, NULL);
  pthread_testcancel();
  pthread_cleanup_pop(0);
  return (void *)1;
}

static void cancel_one(const char *name, void *(*body)(void *), int settle_us) {
  pthread_t t;
  void *ret;
  entered = sent = 0;
  int before = cleaned;
  CHECK_RC(pthread_create(&t, NULL, body, NULL), 0);
  while (!__atomic_load_n(&entered, __ATOMIC_ACQUIRE))
    usleep(100);
  if (settle_us) { /* 0: cancel on the way in; else blocked, and for as long */
    await_asleep(entered);
    usleep((useconds_t)settle_us);
  }
  CHECK_RC(pthread_cancel(t), 0);
  __atomic_store_n(&sent, 1, __ATOMIC_RELEASE);
  CHECK_RC(pthread_join(t, &ret), 0);
  CHECK(ret == PTHREAD_CANCELED);
  CHECK(cleaned == before + 1);
  CHECK_RC(pthread_mutex_trylock(&lock), 0);
  CHECK_RC(pthread_mutex_unlock(&lock), 0);
  if (settle_us)
    printf("%s cancelled\n", name);
}

int main(void) {
  CHECK(pipe(pipefd) == 0);
  CHECK(sem_init(&never, 0, 0) == 0);
  CHECK((ep = epoll_create1(0)) >= 0);
  for (int us = 0; us <= 8000; us += 8000) {
    cancel_one("read", in_read, us);
    cancel_one("poll", in_poll, us);
    cancel_one("select", in_select, us);
    cancel_one("epoll_wait", in_epoll, us);
    cancel_one("sleep", in_sleep, us);
    cancel_one("nanosleep", in_nanosleep, us);
    cancel_one("sem_wait", in_sem, us);
    cancel_one("cond_wait", in_cond, us);
    cancel_one("cond_timedwait", in_timedcond, us);
    cancel_one("disabled", disabled, us);
  }
  cancel_one("join", in_join, 8000);
  /* cancelled while it waits for a mutex: acts only afterwards */
  pthread_t t;
  void *ret;
  entered = 0;
  pthread_mutex_lock(&lock);
  CHECK_RC(pthread_create(&t, NULL, mutex_is_no_point, NULL), 0);
  while (!__atomic_load_n(&entered, __ATOMIC_ACQUIRE))
    usleep(100);
  await_asleep(entered);
  CHECK_RC(pthread_cancel(t), 0);
  usleep(5000);
  CHECK_RC(pthread_tryjoin_np(t, NULL), EBUSY);
  pthread_mutex_unlock(&lock);
  CHECK_RC(pthread_join(t, &ret), 0);
  CHECK(ret == PTHREAD_CANCELED);
  puts("cancel ok");
  return 0;
}
