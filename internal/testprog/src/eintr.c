/* eintr: no call with a time-out may return EINTR or early because a sampler is at work; and each must return
 * EINTR when the program's own signal interrupts it. Threads burn CPU right before each call, so that the
 * sampler has just signalled, or is about to. */
#include "check.h"
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { MS = 1000000, TIMEOUT = 3 * MS, ROUNDS = 5 };
/* Socket time-outs count in jiffies and may be short by one: 10 ms at the slowest clock in use. */
enum { JIFFY = 10 * MS };

static int ep, semid, sock[2];
static __thread int own; /* 1: expecting EINTR from the program's own signal, so wait long */
static uint32_t word;

static struct timespec span(void) {
  struct timespec s = {own ? 60 : 0, own ? 0 : TIMEOUT};
  return s;
}
static int span_ms(void) { return own ? 60000 : TIMEOUT / MS; }

/* Each returns 0 for "timed out as it should", EINTR for that, anything else for a wrong result. */
static int by(int rc, int want_errno) { return rc == -1 ? (errno == want_errno ? 0 : errno) : 1000 + rc; }
static int zero(int rc) { return rc == 0 ? 0 : rc == -1 ? errno : 1000 + rc; }

static int c_poll(void) { return zero(poll(NULL, 0, span_ms())); }
static int c_ppoll(void) {
  struct timespec s = span();
  sigset_t none;
  sigemptyset(&none);
  return zero(ppoll(NULL, 0, &s, &none));
}
static int c_ppoll_nomask(void) {
  struct timespec s = span();
  return zero(ppoll(NULL, 0, &s, NULL));
}
static int c_select(void) {
  struct timeval tv = {own ? 60 : 0, own ? 0 : TIMEOUT / 1000};
  return zero(select(0, NULL, NULL, NULL, &tv));
}
static int c_pselect(void) {
  struct timespec s = span();
  sigset_t none;
  sigemptyset(&none);
  return zero(pselect(0, NULL, NULL, NULL, &s, &none));
}
static int c_epoll_wait(void) {
  struct epoll_event e;
  return zero(epoll_wait(ep, &e, 1, span_ms()));
}
static int c_epoll_pwait(void) {
  struct epoll_event e;
  sigset_t none;
  sigemptyset(&none);
  return zero(epoll_pwait(ep, &e, 1, span_ms(), &none));
}
static int c_nanosleep(void) {
  struct timespec s = span(), rem;
  return zero(nanosleep(&s, &rem));
}
static int c_clock_nanosleep(void) {
  struct timespec s = span();
  return clock_nanosleep(CLOCK_MONOTONIC, 0, &s, NULL);
}
static int c_clock_nanosleep_abs(void) {
  struct timespec s = after_ns(CLOCK_MONOTONIC, own ? 60000000000 : TIMEOUT);
  return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &s, NULL);
}
static int c_usleep(void) { return zero(usleep(own ? 60000000 : TIMEOUT / 1000)); }
static int c_recv(void) {
  char c;
  return by((int)recv(sock[0], &c, 1, 0), EAGAIN);
}
static int c_read_sock(void) {
  char c;
  return by((int)read(sock[0], &c, 1), EAGAIN);
}
static int c_recvmsg(void) {
  char c;
  struct iovec v = {&c, 1};
  struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
  return by((int)recvmsg(sock[0], &h, 0), EAGAIN);
}
static int c_futex(void) {
  struct timespec s = span();
  return by((int)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &s, NULL, 0), ETIMEDOUT);
}
static int c_semtimedop(void) {
  struct timespec s = span();
  struct sembuf op = {0, -1, 0};
  return by(semtimedop(semid, &op, 1, &s), EAGAIN);
}
static int c_sigtimedwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  struct timespec s = span();
  return by(sigtimedwait(&set, NULL, &s), EAGAIN);
}
static int c_sem_timedwait(void) {
  sem_t s;
  sem_init(&s, 0, 0);
  struct timespec at = after_ns(CLOCK_REALTIME, own ? 60000000000 : TIMEOUT);
  return by(sem_timedwait(&s, &at), ETIMEDOUT);
}
/* pthread_cond_timedwait never returns EINTR, by specification: only in the first half */
static int c_cond(void) {
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t c = PTHREAD_COND_INITIALIZER;
  struct timespec at = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  int rc;
  pthread_mutex_lock(&m);
  while ((rc = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &at)) == 0)
    ;
  pthread_mutex_unlock(&m);
  return rc == ETIMEDOUT ? 0 : rc;
}

static const struct {
  const char *name;
  int (*f)(void);
  int slack;  /* ns by which the kernel itself may be early */
  int no_own; /* never interrupted by the program's own signal, or with effects of its own */
} calls[] = {
    {"poll", c_poll, 0, 0},
    {"ppoll", c_ppoll, 0, 0},
    {"ppoll without a mask", c_ppoll_nomask, 0, 0},
    {"select", c_select, 0, 0},
    {"pselect", c_pselect, 0, 0},
    {"epoll_wait", c_epoll_wait, 0, 0},
    {"epoll_pwait", c_epoll_pwait, 0, 0},
    {"nanosleep", c_nanosleep, 0, 0},
    {"clock_nanosleep", c_clock_nanosleep, 0, 0},
    {"clock_nanosleep absolute", c_clock_nanosleep_abs, 0, 0},
    {"usleep", c_usleep, 0, 0},
    {"recv", c_recv, JIFFY, 1},
    {"read of a socket", c_read_sock, JIFFY, 1},
    {"recvmsg", c_recvmsg, JIFFY, 1},
    {"futex", c_futex, 0, 0},
    {"semtimedop", c_semtimedop, JIFFY, 0},
    {"sigtimedwait", c_sigtimedwait, 0, 0},
    {"sem_timedwait", c_sem_timedwait, 1 * MS, 0}, /* measured on another clock */
    {"pthread_cond_clockwait", c_cond, 0, 1},
};
enum { CALLS = sizeof calls / sizeof *calls };

static int bad;

static void *run_all(void *arg) {
  int start = (int)(intptr_t)arg;
  for (int r = 0; r < ROUNDS; r++)
    for (int k = 0; k < CALLS; k++) {
      int i = (k + start) % CALLS;
      burn_ns(300000 + 200000 * (r % 5));
      int64_t t0 = mono_ns();
      int rc = calls[i].f();
      int64_t took = mono_ns() - t0;
      if (rc != 0 || took < TIMEOUT - calls[i].slack) {
        fprintf(stderr, "%s: result %d (EINTR is %d) after %lld us\n", calls[i].name, rc, EINTR,
                (long long)took / 1000);
        __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
      }
    }
  return NULL;
}

static void on_usr1(int sig) { (void)sig; }
static volatile int at_call, returned;

static void *expect_own(void *arg) {
  (void)arg;
  own = 1;
  for (int i = 0; i < CALLS; i++) {
    if (calls[i].no_own)
      continue;
    burn_ns(500000);
    __atomic_store_n(&at_call, i + 1, __ATOMIC_RELEASE);
    int rc = calls[i].f();
    __atomic_store_n(&returned, i + 1, __ATOMIC_RELEASE);
    if (rc != EINTR) {
      fprintf(stderr, "%s: %d instead of EINTR for the program's own signal\n", calls[i].name, rc);
      __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
    }
  }
  return NULL;
}

static volatile int stop;
static void *burner(void *arg) {
  while (!stop)
    burn_ns(1000000);
  return arg;
}

int main(void) {
  CHECK((ep = epoll_create1(EPOLL_CLOEXEC)) >= 0);
  CHECK((semid = semget(IPC_PRIVATE, 1, 0600)) >= 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
  struct timeval tv = {0, TIMEOUT / 1000};
  CHECK(setsockopt(sock[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
  sigset_t block;
  sigemptyset(&block);
  sigaddset(&block, SIGUSR2);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &block, NULL), 0);
  pthread_t t[4], b;
  CHECK_RC(pthread_create(&b, NULL, burner, NULL), 0);
  for (intptr_t i = 0; i < 4; i++)
    CHECK_RC(pthread_create(&t[i], NULL, run_all, (void *)(i * 5)), 0);
  for (int i = 0; i < 4; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  stop = 1;
  CHECK_RC(pthread_join(b, NULL), 0);

  struct sigaction sa = {.sa_handler = on_usr1};
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  CHECK_RC(pthread_create(&t[0], NULL, expect_own, NULL), 0);
  for (int i = 0; i < CALLS; i++) {
    if (calls[i].no_own)
      continue;
    while (__atomic_load_n(&at_call, __ATOMIC_ACQUIRE) < i + 1)
      usleep(100);
    /* sent before the thread has blocked it interrupts nothing, so offer it until the call is back */
    while (__atomic_load_n(&returned, __ATOMIC_ACQUIRE) < i + 1) {
      usleep(4000);
      pthread_kill(t[0], SIGUSR1);
    }
  }
  CHECK_RC(pthread_join(t[0], NULL), 0);
  semctl(semid, 0, IPC_RMID);
  puts(bad ? "eintr failed" : "eintr ok");
  return bad;
}
