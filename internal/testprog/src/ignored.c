/* ignored: signals of the sampler's kind that others send and the program ignores, or has blocked, end no call early.
 * Each call in a process of its own. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { LONG_MS = 150 };
static const struct timespec length = {0, LONG_MS * 1000000};
static pthread_t victim;
static volatile pid_t victim_tid;
static int how;

static void *sends(void *arg) {
  union sigval v = {.sival_int = 77};
  await_asleep(victim_tid);
  usleep(20000);
  if (how == 0)
    CHECK(kill(getpid(), SIGURG) == 0);
  else if (how == 1)
    CHECK_RC(pthread_kill(victim, SIGURG), 0);
  else if (how == 2)
    CHECK_RC(pthread_sigqueue(victim, SIGURG, v), 0);
  else
    CHECK(sigqueue(getpid(), SIGURG, v) == 0);
  return arg;
}

static void calls(int which) {
  struct pollfd none = {.fd = -1};
  struct timeval tv = {0, LONG_MS * 1000};
  struct timespec until = after_ns(CLOCK_REALTIME, length.tv_nsec), mono = after_ns(CLOCK_MONOTONIC, length.tv_nsec);
  struct epoll_event ev;
  sem_t sem;
  sigset_t usr2;
  sigemptyset(&usr2);
  sigaddset(&usr2, SIGUSR2);
  int ep = epoll_create1(0), id, timed[2];
  char byte;
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, timed) == 0);
  CHECK(setsockopt(timed[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
  struct sembuf take = {0, -1, 0};
  switch (which) {
    case 0: CHECK(poll(&none, 1, LONG_MS) == 0); break;
    case 1: CHECK(ppoll(&none, 1, &length, NULL) == 0); break;
    case 2: CHECK(select(0, NULL, NULL, NULL, &tv) == 0); break;
    case 3: CHECK(pselect(0, NULL, NULL, NULL, &length, NULL) == 0); break;
    case 4: CHECK(epoll_wait(ep, &ev, 1, LONG_MS) == 0); break;
    case 5: CHECK(epoll_pwait(ep, &ev, 1, LONG_MS, NULL) == 0); break;
    case 6: CHECK(nanosleep(&length, NULL) == 0); break;
    case 7: CHECK_RC(clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL), 0); break;
    case 8: CHECK_RC(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &mono, NULL), 0); break;
    case 9: CHECK(usleep(LONG_MS * 1000) == 0); break;
    case 10: CHECK(sleep(1) == 0); break;
    case 11: CHECK(sigtimedwait(&usr2, NULL, &length) == -1 && errno == EAGAIN); break;
    case 12: CHECK(sem_init(&sem, 0, 0) == 0 && sem_timedwait(&sem, &until) == -1 && errno == ETIMEDOUT); break;
    case 13:
      CHECK((id = semget(IPC_PRIVATE, 1, 0600)) >= 0);
      int r = semtimedop(id, &take, 1, &length), e = errno;
      CHECK(semctl(id, 0, IPC_RMID) == 0);
      CHECK(r == -1 && e == EAGAIN);
      break;
    case 14: CHECK(syscall(SYS_epoll_pwait, ep, &ev, 1, LONG_MS, NULL, 8) == 0); break;
    case 15: CHECK(syscall(SYS_rt_sigtimedwait, &usr2, NULL, &length, 8) == -1 && errno == EAGAIN); break;
    case 16: CHECK(syscall(SYS_nanosleep, &length, NULL) == 0); break;
    case 17: CHECK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &length, NULL) == 0); break;
    case 18: CHECK(recv(timed[0], &byte, 1, 0) == -1 && errno == EAGAIN); break;
    case 19: CHECK(read(timed[0], &byte, 1) == -1 && errno == EAGAIN); break;
    case 20: CHECK(syscall(SYS_recvfrom, timed[0], &byte, 1, 0, NULL, NULL) == -1 && errno == EAGAIN); break;
    default: CHECK(0);
  }
  close(ep);
}
enum { CALLS = 21 };

static void one(int which) {
  pthread_t t;
  victim = pthread_self();
  victim_tid = gettid();
  CHECK_RC(pthread_create(&t, NULL, sends, NULL), 0);
  int64_t from = mono_ns();
  calls(which);
  CHECK(mono_ns() - from >= LONG_MS * 1000000ll);
  CHECK_RC(pthread_join(t, NULL), 0);
}

/* Born with everything blocked: what is sent to it waits. */
static void *masked(void *arg) {
  sigset_t pending;
  one(*(int *)arg);
  CHECK(sigpending(&pending) == 0);
  CHECK(sigismember(&pending, SIGURG) == 1);
  return NULL;
}

int main(void) {
  int failed = 0;
  for (int i = 0; i < 2 * CALLS; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid)
      continue;
    how = i % 4;
    if (i < CALLS) {
      if (i % 2)
        CHECK(signal(SIGURG, SIG_IGN) == SIG_DFL);
      burn_ns(3000000);
      one(i);
      burn_ns(3000000);
      _exit(0);
    }
    int which = i - CALLS;
    how = 1; /* whether one that was queued was sent to the process or to the thread nobody can tell */
    sigset_t all, old;
    pthread_t t;
    sigfillset(&all);
    CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
    CHECK_RC(pthread_create(&t, NULL, masked, &which), 0);
    CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
    CHECK_RC(pthread_join(t, NULL), 0);
    _exit(0);
  }
  for (int i = 0; i < 2 * CALLS; i++) {
    int status;
    while (waitpid(-1, &status, 0) < 0) {}
    failed += !WIFEXITED(status) || WEXITSTATUS(status);
  }
  CHECK(failed == 0);
  puts("ignored ok");
  return 0;
}
