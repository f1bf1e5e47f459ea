/* lib.c: what the agent has to get right on arm64, in one library: a caller's stack behind hooks that are called from functions
 * with and without frames, signed return addresses, the thread's control block that is not at the thread pointer, the layouts
 * of struct stat and struct epoll_event, calls by number, exceptions' and cancellation's way through our frames, jumps out
 * of blocking calls, fork. Exits by p_main's result: 0, or the line of what was wrong. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define WANT(c) do { if (!(c)) return __LINE__ & 127; } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static volatile int sink;
static int state, word;

static void nap(long ms) {
  struct timespec t = {0, ms * 1000000};
  while (nanosleep(&t, &t)) {}
}

/* ---- stacks: called back from the C library, whose frames are of all kinds ---- */

NOINLINE int compare(const void *a, const void *b) {
  char *p = malloc(70000);
  p[5] = 1;
  sink += p[5];
  free(p);
  return *(const int *)a - *(const int *)b;
}

NOINLINE void sorts(void) {
  int v[16];
  for (int i = 0; i < 16; i++) v[i] = 16 - i;
  qsort(v, 16, sizeof *v, compare);
  sink += v[3];
}

NOINLINE void deeper(int n) {
  if (n) deeper(n - 1);
  else sorts();
  sink++;
}

/* ---- locks and condition variables ---- */

NOINLINE void holds(void) {
  pthread_mutex_lock(&mutex);
  nap(20);
  pthread_mutex_unlock(&mutex);
  sink++;
}

static void *worker(void *x) {
  pthread_setname_np(pthread_self(), "worker");
  for (int i = 0; i < 4; i++) {
    holds();
    sched_yield();
  }
  deeper(20);
  return x;
}

NOINLINE void waits(void) {
  pthread_mutex_lock(&mutex);
  while (!state) pthread_cond_wait(&cond, &mutex);
  pthread_mutex_unlock(&mutex);
  sink++;
}

static void *waiter(void *x) {
  waits();
  return x;
}

/* ---- a pipe behind an epoll instance ---- */

static int pipe_fd[2];
static const uint64_t token = 0x1234567890abcdef;

NOINLINE int polls(void) {
  int e = epoll_create1(0);
  struct epoll_event ev = {.events = EPOLLIN, .data.u64 = token}, got[2];
  char c;
  WANT(e >= 0 && !epoll_ctl(e, EPOLL_CTL_ADD, pipe_fd[0], &ev));
  memset(got, 0x55, sizeof got);
  WANT(epoll_wait(e, got, 2, 10000) == 1 && got[0].data.u64 == token && got[0].events == EPOLLIN);
  WANT(read(pipe_fd[0], &c, 1) == 1 && c == 'x');
  close(e);
  return 0;
}

static void *poller(void *x) {
  (void)x;
  return (void *)(intptr_t)polls();
}

/* ---- by number ---- */

static void *futex_waiter(void *x) {
  while (!__atomic_load_n(&word, __ATOMIC_ACQUIRE)) syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
  return x;
}

/* ---- left otherwise than by return ---- */

static void *cancelled(void *x) {
  struct timespec t = {30, 0};
  nanosleep(&t, NULL);
  return x;
}

static sigjmp_buf jump;
static void on_usr1(int sig) {
  (void)sig;
  siglongjmp(jump, 1);
}

static void *jumps(void *x) {
  char c;
  if (!sigsetjmp(jump, 1)) {
    __atomic_store_n((int *)x, 1, __ATOMIC_RELEASE);
    while (read(pipe_fd[0], &c, 1) != -2) {}
  }
  nap(5); /* an ordinary call again */
  return NULL;
}

int p_main(void) {
  pthread_t t[2];
  void *result;
  struct timespec now, later;

  for (int i = 0; i < 2; i++) WANT(!pthread_create(&t[i], NULL, worker, NULL));
  for (int i = 0; i < 2; i++) WANT(!pthread_join(t[i], NULL));
  for (int i = 0; i < 20; i++) sorts();

  errno = 77;
  free(malloc(1 << 20));
  WANT(errno == 77);
  errno = 0;
  WANT(read(-1, &now, 1) == -1 && errno == EBADF);
  WANT(pthread_mutex_trylock(&mutex) == 0 && pthread_mutex_trylock(&mutex) == EBUSY && pthread_mutex_unlock(&mutex) == 0);

  WANT(!pthread_create(&t[0], NULL, waiter, NULL));
  nap(20);
  pthread_mutex_lock(&mutex);
  state = 1;
  pthread_cond_signal(&cond);
  pthread_mutex_unlock(&mutex);
  WANT(!pthread_join(t[0], NULL));
  pthread_mutex_lock(&mutex);
  clock_gettime(CLOCK_REALTIME, &now);
  now.tv_sec -= 1;
  WANT(pthread_cond_timedwait(&cond, &mutex, &now) == ETIMEDOUT);
  pthread_mutex_unlock(&mutex);

  WANT(!pipe(pipe_fd) && !pthread_create(&t[0], NULL, poller, NULL));
  nap(50);
  WANT(write(pipe_fd[1], "x", 1) == 1);
  WANT(!pthread_join(t[0], &result) && !result);

  WANT(!pthread_create(&t[0], NULL, futex_waiter, NULL));
  nap(20);
  __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
  WANT(!pthread_join(t[0], NULL));

  clock_gettime(CLOCK_MONOTONIC, &now);
  WANT(!pthread_create(&t[0], NULL, cancelled, NULL));
  nap(20);
  WANT(!pthread_cancel(t[0]) && !pthread_join(t[0], &result) && result == PTHREAD_CANCELED);
  clock_gettime(CLOCK_MONOTONIC, &later);
  WANT(later.tv_sec - now.tv_sec < 25);

  int ready = 0;
  struct sigaction a = {.sa_handler = on_usr1};
  WANT(!sigaction(SIGUSR1, &a, NULL) && !pthread_create(&t[0], NULL, jumps, &ready));
  while (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE)) nap(1);
  nap(20);
  WANT(!pthread_kill(t[0], SIGUSR1) && !pthread_join(t[0], NULL));

  int status;
  pid_t child = fork();
  if (!child) {
    sorts();
    nap(5);
    _exit(7);
  }
  WANT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  WANT(write(1, "done\n", 5) == 5);
  return 0;
}
