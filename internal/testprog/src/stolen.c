/* stolen: a signal that the process ignores is sent to the process. The kernel chooses the sleeping thread for it and wakes
 * that, and another thread takes the signal before the sleeper runs: the sleeper's call has ended, and nothing shows why. It
 * must go on as if nothing had been sent. The order is forced: both threads share one processor, and the sleeper, whose policy is
 * SCHED_IDLE, does not get it before the other one sleeps. Each call in a process of its own. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { LONG_MS = 150, CALLS = 5 };
static const struct timespec length = {0, LONG_MS * 1000000};
static volatile pid_t victim_tid;
static volatile int handled;

static void on_alarm(int sig) { handled += sig == SIGALRM; }

static void *steals(void *arg) {
  sigset_t urg;
  struct sched_param none = {0};
  sigemptyset(&urg);
  sigaddset(&urg, SIGURG);
  CHECK(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &urg, NULL), 0);
  await_asleep(victim_tid);
  if (arg) { /* one that is ignored, for this thread, and one that does end the call, as it does everywhere */
    CHECK_RC(pthread_kill(pthread_self(), SIGURG), 0);
    CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &urg, NULL), 0);
    CHECK(kill(getpid(), SIGALRM) == 0);
    return NULL;
  }
  CHECK(kill(getpid(), SIGURG) == 0);
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &urg, NULL), 0);
  return NULL;
}

static void calls(int which, int ends) {
  struct epoll_event ev;
  sigset_t usr2;
  struct sembuf take = {0, -1, 0};
  int ep = epoll_create1(0), id, want = ends ? EINTR : EAGAIN;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  switch (which) {
    case 0: CHECK(epoll_wait(ep, &ev, 1, LONG_MS) == (ends ? -1 : 0) && (!ends || errno == want)); break;
    case 1: CHECK(epoll_pwait(ep, &ev, 1, LONG_MS, NULL) == (ends ? -1 : 0) && (!ends || errno == want)); break;
    case 2: CHECK(sigtimedwait(&usr2, NULL, &length) == -1 && errno == want); break;
    case 3:
      CHECK((id = semget(IPC_PRIVATE, 1, 0600)) >= 0);
      int r = semtimedop(id, &take, 1, &length), e = errno;
      CHECK(semctl(id, 0, IPC_RMID) == 0);
      CHECK(r == -1 && e == want);
      break;
    case 4: CHECK(nanosleep(&length, NULL) == (ends ? -1 : 0) && (!ends || errno == want)); break;
    default: CHECK(0);
  }
  close(ep);
}

int main(void) {
  int failed = 0;
  for (int i = 0; i < 3 * CALLS; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
      continue;
    int which = i % CALLS, ends = i / CALLS; /* 2: its handler runs on the alternate stack */
    struct sched_param none = {0};
    struct sigaction alarmed = {.sa_handler = on_alarm, .sa_flags = ends == 2 ? SA_ONSTACK : 0};
    stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
    cpu_set_t one;
    pthread_t t;
    CHECK(ends != 2 || sigaltstack(&alternate, NULL) == 0);
    CHECK(sigaction(SIGALRM, &alarmed, NULL) == 0);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    victim_tid = gettid();
    if (!ends)
      CHECK(signal(SIGURG, SIG_IGN) == SIG_DFL);
    burn_ns(3000000);
    CHECK_RC(pthread_create(&t, NULL, steals, ends ? &one : NULL), 0);
    CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    int64_t from = mono_ns();
    calls(which, ends);
    if (ends)
      CHECK(handled == 1);
    else
      CHECK(mono_ns() - from >= LONG_MS * 1000000ll);
    CHECK_RC(pthread_join(t, NULL), 0);
    _exit(0);
  }
  for (int i = 0; i < 3 * CALLS; i++) {
    int status;
    while (waitpid(-1, &status, 0) < 0) {}
    failed += !WIFEXITED(status) || WEXITSTATUS(status);
  }
  CHECK(failed == 0);
  puts("stolen ok");
  return 0;
}
