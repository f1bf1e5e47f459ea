/* sigstorm: signals of the program's own at a high rate, from timers, from other threads and queued ones that must all
 * arrive, in order, with their values; handlers call wrapped functions; masks are changed all the time. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/time.h>

enum { QUEUED = 6000, THREADS = 4 };

static volatile sig_atomic_t alarms, kicks;
static volatile int next_value, out_of_order;
static sem_t tokens;
static volatile int stop;
static int pipes[2];

static void on_alarm(int sig) {
  (void)sig;
  int e = errno;
  alarms++;
  sem_post(&tokens);
  char c = 'x';
  if (alarms % 16 == 0 && write(pipes[1], &c, 1) != 1)
    out_of_order = 1;
  struct timespec ts = {0, 1000};
  if (alarms % 64 == 0)
    nanosleep(&ts, NULL);
  errno = e;
}

static void on_kick(int sig) {
  (void)sig;
  int e = errno;
  __atomic_add_fetch(&kicks, 1, __ATOMIC_RELAXED);
  poll(NULL, 0, 0);
  errno = e;
}

static void on_queued(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  if (info->si_code != SI_QUEUE || info->si_value.sival_int != next_value)
    out_of_order = 1;
  next_value++;
}

static void *worker(void *arg) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  while (!stop) {
    burn_ns(100000);
    CHECK_RC(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
    free(malloc(100));
    CHECK(!sigismember(&old, SIGALRM));
    CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
    int rc = poll(NULL, 0, 1);
    CHECK(rc == 0 || (rc == -1 && errno == EINTR));
    while (sem_trywait(&tokens) == 0)
      ;
    CHECK(errno == EAGAIN || errno == EINTR);
  }
  return arg;
}

int main(void) {
  CHECK(sem_init(&tokens, 0, 0) == 0 && pipe(pipes) == 0);
  struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, k = {.sa_handler = on_kick},
                   q = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO};
  sigfillset(&q.sa_mask);
  CHECK(sigaction(SIGALRM, &a, NULL) == 0 && sigaction(SIGUSR1, &k, NULL) == 0 && sigaction(SIGRTMIN + 2, &q, NULL) == 0);
  sigset_t rt;
  sigemptyset(&rt);
  sigaddset(&rt, SIGRTMIN + 2);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &rt, NULL), 0);
  pthread_t t[THREADS];
  for (int i = 0; i < THREADS; i++)
    CHECK_RC(pthread_create(&t[i], NULL, worker, NULL), 0);
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &rt, NULL), 0); /* only this thread takes them, so their order is known */
  struct itimerval every = {{0, 200}, {0, 200}};
  CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
  for (int i = 0; i < QUEUED; i++) {
    union sigval v = {.sival_int = i};
    while (sigqueue(getpid(), SIGRTMIN + 2, v) != 0) {
      CHECK(errno == EAGAIN);
      usleep(50);
    }
    if (i % 10 == 0)
      CHECK_RC(pthread_kill(t[i / 10 % THREADS], SIGUSR1), 0);
    if (i % 100 == 0)
      free(malloc(300));
  }
  for (int i = 0; i < 20000 && next_value < QUEUED; i++)
    usleep(500);
  stop = 1;
  struct itimerval none = {{0, 0}, {0, 0}};
  CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(next_value == QUEUED);
  CHECK(!out_of_order);
  CHECK(kicks > 0 && alarms > 0);
  puts("sigstorm ok");
  return 0;
}
