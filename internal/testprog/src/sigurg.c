/* sigurg: a program that uses SIGURG itself, or with -DSIG=… another sampling signal: handlers, values, masks, pending sets and waits behave as if no
 * sampler used the same signal; and a storm of it between threads, with nested handlers that block. */
#include "check.h"
#include <poll.h>
#include <signal.h>

#ifndef SIG
#define SIG SIGURG
#endif
enum { STORM = 4000 };

static volatile int got, got_value, got_code, nested;
static volatile int stop;

static void on_urg(int sig, siginfo_t *si, void *uc) {
  (void)uc;
  int e = errno;
  CHECK(sig == SIG);
  got_value = si->si_value.sival_int;
  got_code = si->si_code;
  __atomic_add_fetch(&got, 1, __ATOMIC_RELAXED);
  errno = e;
}

static void on_usr1(int sig) {
  (void)sig;
  int e = errno;
  poll(NULL, 0, 0);
  __atomic_add_fetch(&nested, 1, __ATOMIC_RELAXED);
  errno = e;
}

static void *victim(void *arg) {
  (void)arg;
  while (!stop) {
    errno = 4321;
    burn_ns(200000);
    CHECK(errno == 4321);
    free(malloc(50));
  }
  return NULL;
}

int main(int argc, char **argv) {
  /* "kept": the sampler has no other signal to go to. */
  CHECK(argc < 2 || (strcmp(argv[1], "kept") == 0 && signal(SIGWINCH, on_usr1) == SIG_DFL));
  struct sigaction sa = {.sa_sigaction = on_urg, .sa_flags = SA_SIGINFO | SA_RESTART}, old;
  sigemptyset(&sa.sa_mask);
  sigaddset(&sa.sa_mask, SIGUSR2);
  burn_ns(5000000);
  CHECK(sigaction(SIG, NULL, &old) == 0);
  printf("before: %s\n", old.sa_handler == SIG_DFL ? "default" : old.sa_handler == SIG_IGN ? "ignored" : "a handler");
  CHECK(sigaction(SIG, &sa, &old) == 0);
  printf("replaced: %s\n", old.sa_handler == SIG_DFL ? "default" : "something else");
  CHECK(sigaction(SIG, NULL, &old) == 0);
  CHECK(old.sa_sigaction == on_urg && (old.sa_flags & SA_SIGINFO) && sigismember(&old.sa_mask, SIGUSR2) == 1);

  burn_ns(50000000);
  CHECK(got == 0); /* none of the sampler's may reach it */
  for (int i = 0; i < 200; i++) {
    CHECK(raise(SIG) == 0);
    CHECK(got == i + 1 && got_code == SI_TKILL);
    if (i % 10 == 0)
      burn_ns(500000);
  }
  got = 0;
  for (int i = 1; i <= 100; i++) {
    union sigval v = {.sival_int = i * 7};
    CHECK(sigqueue(getpid(), SIG, v) == 0);
    CHECK(got == i && got_value == i * 7 && got_code == SI_QUEUE);
  }

  /* blocked: pending, then waited for */
  sigset_t set, pend;
  sigemptyset(&set);
  sigaddset(&set, SIG);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
  got = 0;
  for (int i = 0; i < 20; i++) {
    union sigval v = {.sival_int = 1000 + i};
    burn_ns(1000000);
    CHECK_RC(pthread_sigqueue(pthread_self(), SIG, v), 0);
    CHECK(sigpending(&pend) == 0 && sigismember(&pend, SIG) == 1);
    siginfo_t si;
    CHECK(sigwaitinfo(&set, &si) == SIG);
    CHECK(si.si_value.sival_int == 1000 + i && si.si_code == SI_QUEUE);
  }
  CHECK(got == 0);
  siginfo_t si;
  struct timespec ms = {0, 3000000};
  for (int i = 0; i < 10; i++) {
    burn_ns(2000000);
    int64_t t0 = mono_ns();
    CHECK(sigtimedwait(&set, &si, &ms) == -1 && errno == EAGAIN); /* nobody sent one */
    CHECK(mono_ns() - t0 >= 3000000);
  }
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
  CHECK(got == 0);

  /* storm */
  struct sigaction u = {.sa_handler = on_usr1};
  sigemptyset(&u.sa_mask);
  CHECK(sigaction(SIGUSR1, &u, NULL) == 0);
  pthread_t t[2];
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&t[i], NULL, victim, NULL), 0);
  got = 0;
  for (int i = 0; i < STORM; i++) {
    int rc;
    while ((rc = pthread_kill(t[i % 2], SIG)) == EAGAIN) /* as many are queued as may be: they have not run for long */
      usleep(1000);
    CHECK_RC(rc, 0);
    CHECK_RC(pthread_kill(t[i % 2], SIGUSR1), 0);
    if (i % 100 == 0)
      usleep(1000);
  }
  stop = 1;
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(got > 0 && nested > 0);
  CHECK(SIG < SIGRTMIN || got == STORM); /* real-time signals queue: none may be lost */

  CHECK(signal(SIG, SIG_IGN) != SIG_ERR);
  got = 0;
  CHECK(raise(SIG) == 0);
  CHECK(got == 0);
  CHECK(signal(SIG, SIG_DFL) == SIG_IGN);
  CHECK(SIG >= SIGRTMIN || raise(SIG) == 0); /* a real-time one would end the program */
  burn_ns(20000000);
  CHECK(got == 0);
  puts("sigurg ok");
  return 0;
}
