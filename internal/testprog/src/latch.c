/* latch: a program that has a use for the sampler's signal, and computes without calls of its own meanwhile. How, its argument
 * says: "signalfd" blocks it and reads it from a descriptor, as PostgreSQL's latches do; "handler" installs a handler; "threads"
 * does so when threads run already; "both" has a handler for the second sampling signal, too. */
#include "check.h"
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { ROUNDS = 6, WORK_NS = 20000000 };
static volatile int got;
static volatile int threads_run, used;

static void on_signal(int sig) { got += sig == SIGURG || sig == SIGWINCH; }

__attribute__((noinline)) static uint64_t secure_write(void) { return burn_ns(WORK_NS); }

static void *works(void *arg) {
  __atomic_add_fetch(&threads_run, 1, __ATOMIC_SEQ_CST);
  while (!used) {}
  for (int i = 0; i < ROUNDS; i++) {
    secure_write();
    usleep(100);
  }
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int by_descriptor = strcmp(argv[1], "signalfd") == 0, both = strcmp(argv[1], "both") == 0;
  sigset_t urg, pend;
  pthread_t t[2];
  sigemptyset(&urg);
  sigaddset(&urg, SIGURG);
  burn_ns(5000000);
  if (strcmp(argv[1], "threads") == 0) {
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_create(&t[i], NULL, works, NULL), 0);
    while (threads_run < 2)
      usleep(1000);
  }
  struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, old;
  int fd = -1, ep = epoll_create1(0);
  if (both)
    CHECK(sigaction(SIGWINCH, &a, NULL) == 0);
  if (by_descriptor) {
    CHECK(sigprocmask(SIG_SETMASK, &urg, NULL) == 0);
    CHECK((fd = signalfd(-1, &urg, SFD_NONBLOCK | SFD_CLOEXEC)) >= 0);
    struct epoll_event ev = {.events = EPOLLIN};
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0);
  } else {
    CHECK(sigaction(SIGURG, &a, &old) == 0);
    CHECK(old.sa_handler == SIG_DFL);
  }
  used = 1;
  pid_t me = getpid(), sender = fork();
  if (sender == 0) {
    for (int i = 0; i < ROUNDS; i++) {
      CHECK(kill(me, SIGURG) == 0);
      usleep(1000);
    }
    _exit(0);
  }
  int status;
  if (by_descriptor) {
    struct epoll_event ev;
    struct signalfd_siginfo si;
    CHECK(epoll_wait(ep, &ev, 1, -1) == 1);
    CHECK(read(fd, &si, sizeof si) == sizeof si && si.ssi_signo == SIGURG && si.ssi_pid == (uint32_t)sender);
  }
  while (waitpid(sender, &status, 0) < 0) {}
  CHECK(status == 0);
  for (int i = 0; i < ROUNDS; i++) {
    secure_write();
    usleep(100);
    if (by_descriptor) { /* none of the sampler's may be read there */
      struct signalfd_siginfo si;
      while (read(fd, &si, sizeof si) == sizeof si)
        CHECK(si.ssi_pid == (uint32_t)sender);
      CHECK(sigpending(&pend) == 0 && !sigismember(&pend, SIGURG) && !sigismember(&pend, SIGWINCH));
    } else {
      CHECK(got > 0 && got <= ROUNDS);
    }
  }
  if (strcmp(argv[1], "threads") == 0)
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(sigaction(SIGWINCH, NULL, &old) == 0);
  CHECK(old.sa_handler == (both ? on_signal : SIG_DFL));
  puts("latch ok");
  return 0;
}
