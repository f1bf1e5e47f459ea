/* asleep: 10,000 threads that sleep in calls which any stop would end, and one that works. SIGTERM ends it: it prints how many calls ended early. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;
static long early;
static int ep;
static void on_term(int sig) { stop = sig; }

static void *nap(void *arg) {
  struct epoll_event e;
  while (!stop) {
    struct timespec t = {10, 0};
    errno = 0;
    switch ((long)arg % 3) {
      case 0: epoll_wait(ep, &e, 1, 10000); break;
      case 1: nanosleep(&t, NULL); break;
      default: poll(NULL, 0, 10000);
    }
    if (errno == EINTR && !stop) __atomic_add_fetch(&early, 1, __ATOMIC_RELAXED);
  }
  return NULL;
}

int main(void) {
  pthread_attr_t a;
  pthread_t t;
  sigset_t s;
  ep = epoll_create1(0);
  signal(SIGTERM, on_term);
  sigemptyset(&s);
  sigaddset(&s, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &s, NULL);
  pthread_attr_init(&a);
  pthread_attr_setstacksize(&a, 65536);
  for (long i = 0; i < 9999; i++)
    if (pthread_create(&t, &a, nap, (void *)i)) return 2;
  pthread_sigmask(SIG_UNBLOCK, &s, NULL);
  while (!stop) free(malloc(100)), usleep(500);
  printf("%ld EINTR\n", early);
  fflush(stdout);
  _exit(early != 0);
}
