/* busy: a program to attach to. Its threads allocate, lock, hand over by a condition, sleep in calls that any stop of theirs
 * would end with EINTR, and begin and end others. It counts all of it twice, and EINTRs. SIGTERM ends it: it prints RIGHT, or what was
 * wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 3 };
static volatile sig_atomic_t stop;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static long shared, own[WORKERS], queued, put, taken, threads_made, threads_ended, eintr, wrong;
static void *(*volatile kept_malloc)(size_t) = malloc; /* an address that the program keeps */

static void on_term(int sig) { stop = sig; }

static const char *volatile where = "";

/* in: the call that a signal seems to have ended */
static void interrupted(const char *in) {
  if (stop) return;
  where = in;
  __atomic_add_fetch(&eintr, 1, __ATOMIC_RELAXED);
}

static void *work(void *arg) {
  long i = (long)arg;
  while (!stop) {
    size_t n = 16 + (size_t)(own[i] % 900);
    unsigned char *p = own[i] % 2 ? malloc(n) : kept_malloc(n);
    memset(p, (int)(own[i] & 255), n);
    pthread_mutex_lock(&lock);
    shared++;
    pthread_mutex_unlock(&lock);
    for (size_t k = 0; k < n; k++)
      if (p[k] != (own[i] & 255)) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    free(p);
    own[i]++;
    if (own[i] % 200 == 0 && usleep(500)) interrupted("usleep");
  }
  return NULL;
}

static void *produce(void *arg) {
  while (!stop) {
    pthread_mutex_lock(&queue_lock);
    queued++, put++;
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&queue_lock);
    struct timespec t = {0, 300000};
    if (nanosleep(&t, NULL)) interrupted("nanosleep");
  }
  return arg;
}

static void *consume(void *arg) {
  while (!stop) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec++;
    pthread_mutex_lock(&queue_lock);
    while (!queued && !stop)
      if (pthread_cond_timedwait(&filled, &queue_lock, &t) == ETIMEDOUT) break;
    if (queued) queued--, taken++;
    pthread_mutex_unlock(&queue_lock);
  }
  return arg;
}

static void *wait_events(void *arg) {
  int ep = epoll_create1(0);
  struct epoll_event e;
  while (!stop)
    if (epoll_wait(ep, &e, 1, 15) < 0) interrupted("epoll_wait");
  return arg;
}

static void *wait_semaphore(void *arg) {
  sem_t never;
  sem_init(&never, 0, 0);
  while (!stop) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if ((t.tv_nsec += 15000000) >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
    if (sem_timedwait(&never, &t) < 0 && errno != ETIMEDOUT) interrupted("sem_timedwait");
  }
  return arg;
}

static void *wait_signal(void *arg) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  while (!stop) {
    struct timespec t = {0, 15000000};
    if (sigtimedwait(&set, NULL, &t) < 0 && errno != EAGAIN) interrupted("sigtimedwait");
  }
  return arg;
}

static void *brief(void *arg) {
  free(malloc(100));
  __atomic_add_fetch(&threads_ended, 1, __ATOMIC_RELAXED);
  if ((long)arg % 2) pthread_exit(arg);
  return arg;
}

static void *begin_threads(void *arg) {
  for (long i = 0; !stop; i++) {
    pthread_t t;
    void *r = NULL;
    if (pthread_create(&t, NULL, brief, (void *)i)) continue;
    threads_made++;
    pthread_join(t, &r);
    if (r != (void *)i) __atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
    if (i == 2) pthread_setname_np(pthread_self(), "begun"); /* what pthread_exit loads is loaded */
    if (poll(NULL, 0, 3) < 0) interrupted("poll");
  }
  return arg;
}

int main(void) {
  void *(*bodies[])(void *) = {produce, consume, wait_events, wait_semaphore, wait_signal, begin_threads};
  enum { MORE = sizeof bodies / sizeof *bodies };
  pthread_t t[WORKERS + MORE];
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  signal(SIGTERM, on_term);
  pthread_sigmask(SIG_BLOCK, &term, NULL);
  for (long i = 0; i < WORKERS; i++) pthread_create(&t[i], NULL, work, (void *)i);
  for (int i = 0; i < MORE; i++) pthread_create(&t[WORKERS + i], NULL, bodies[i], NULL);
  pthread_sigmask(SIG_UNBLOCK, &term, NULL);
  while (!stop) usleep(10000);
  for (int i = 0; i < WORKERS + MORE; i++) pthread_join(t[i], NULL);
  long sum = 0;
  for (int i = 0; i < WORKERS; i++) sum += own[i];
  int right = sum == shared && put == taken + queued && threads_made == threads_ended && !eintr && !wrong && sum > 0;
  printf("%s: %ld of %ld counted, %ld put, %ld taken, %ld queued, %ld threads made, %ld ended, %ld EINTR (%s), %ld wrong\n",
         right ? "RIGHT" : "WRONG", shared, sum, put, taken, queued, threads_made, threads_ended, eintr, where, wrong);
  return !right;
}
