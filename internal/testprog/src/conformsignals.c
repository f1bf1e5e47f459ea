/* conformsignals: what POSIX says of signals and threads, case by case: what is inherited, interrupted, restarted, reset,
 * nested, queued, and how much of a sleep is left. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static volatile sig_atomic_t got, depth, deepest, raised, on_stack;
static pid_t me;
static int fds[2];

static void count(int sig) {
  (void)sig;
  got = got + 1;
}
static void set(int sig, void (*f)(int), int flags) {
  struct sigaction a = {.sa_handler = f, .sa_flags = flags};
  CHECK(sigaction(sig, &a, NULL) == 0);
}
static sigset_t just(int sig) {
  sigset_t s;
  sigemptyset(&s);
  sigaddset(&s, sig);
  return s;
}

/* A thread that sends a signal to another one until told to stop: sent before the call it interrupts nothing. */
struct pest {
  pthread_t target, self;
  int sig;
  volatile int stop;
};
static void *pester(void *arg) {
  struct pest *p = arg;
  while (!p->stop) {
    usleep(2000);
    pthread_kill(p->target, p->sig);
  }
  return NULL;
}
static void begin(struct pest *p, int sig) {
  sigset_t all, old;
  *p = (struct pest){.target = pthread_self(), .sig = sig};
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  CHECK_RC(pthread_create(&p->self, NULL, pester, p), 0);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}
static void end(struct pest *p) {
  p->stop = 1;
  CHECK_RC(pthread_join(p->self, NULL), 0);
}

/* Of an hour: a loaded machine may take its time with the signal. The kernel's timer slack may lie on top of what is left when it
 * comes at once. */
static int nearly_all(const struct timespec *left) {
  return left->tv_sec >= 3000 && left->tv_sec <= 3600 && left->tv_nsec >= 0 && left->tv_nsec < 1000000000;
}

static void interrupted(void) {
  struct pest p;
  set(SIGUSR1, count, 0);
  begin(&p, SIGUSR1);
  char c;
  CHECK(read(fds[0], &c, 1) == -1 && errno == EINTR);
  CHECK(poll(NULL, 0, 3600000) == -1 && errno == EINTR);
  struct timespec long_time = {3600, 0}, left = {0, 0};
  CHECK(nanosleep(&long_time, &left) == -1 && errno == EINTR);
  CHECK(nearly_all(&left));
  left.tv_sec = 0;
  CHECK_RC(clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, &left), EINTR);
  CHECK(nearly_all(&left));
  CHECK(sleep(3600) >= 3000);
  CHECK(pause() == -1 && errno == EINTR);
  sem_t s;
  sem_init(&s, 0, 0);
  CHECK(sem_wait(&s) == -1 && errno == EINTR);
  end(&p);
}

static void *write_later(void *arg) {
  while (got < 3) usleep(1000); /* not before the reader has been disturbed */
  CHECK(write(fds[1], "x", 1) == 1);
  return arg;
}
static void restarted(void) {
  struct pest p;
  pthread_t w;
  set(SIGUSR1, count, SA_RESTART);
  got = 0;
  CHECK_RC(pthread_create(&w, NULL, write_later, NULL), 0);
  begin(&p, SIGUSR1);
  char c;
  do
    CHECK(read(fds[0], &c, 1) == 1); /* restarted until the byte came */
  while (0);
  CHECK(got > 0);
  CHECK(poll(NULL, 0, 3600000) == -1 && errno == EINTR); /* never restarted, whatever the flag */
  end(&p);
  CHECK_RC(pthread_join(w, NULL), 0);
}

static void nest(int sig) {
  depth = depth + 1;
  if (depth > deepest)
    deepest = depth;
  if (raised < 2) {
    raised = raised + 1;
    raise(sig);
  }
  poll(NULL, 0, 0);
  depth = depth - 1;
}
static void flags(void) {
  deepest = raised = 0;
  set(SIGUSR2, nest, SA_NODEFER);
  raise(SIGUSR2);
  CHECK(deepest == 3);
  deepest = raised = 0;
  set(SIGUSR2, nest, 0); /* deferred: one at a time */
  raise(SIGUSR2);
  CHECK(deepest == 1 && raised == 2 && depth == 0);
  struct sigaction now;
  set(SIGUSR2, count, SA_RESETHAND);
  raise(SIGUSR2);
  CHECK(sigaction(SIGUSR2, NULL, &now) == 0 && now.sa_handler == SIG_DFL);
  struct sigaction a = {.sa_handler = count, .sa_flags = SA_RESTART | SA_NODEFER}, b;
  sigaddset(&a.sa_mask, SIGHUP);
  CHECK(sigaction(SIGUSR2, &a, NULL) == 0 && sigaction(SIGUSR2, NULL, &b) == 0);
  CHECK(b.sa_handler == count && (b.sa_flags & ~0x04000000) == (SA_RESTART | SA_NODEFER) && sigismember(&b.sa_mask, SIGHUP) == 1);
  CHECK(sigaction(SIGKILL, &a, NULL) == -1 && errno == EINVAL);
  CHECK(signal(SIGHUP, SIG_IGN) == SIG_DFL && signal(SIGHUP, SIG_DFL) == SIG_IGN);
}

static char *alt_low, *alt_high;
static void where(int sig) {
  char here;
  (void)sig;
  on_stack = &here > alt_low && &here < alt_high;
  poll(NULL, 0, 0);
}
static void stacks(void) {
  size_t size = (size_t)SIGSTKSZ + 32768;
  stack_t st = {.ss_sp = malloc(size), .ss_size = size}, old;
  alt_low = st.ss_sp;
  alt_high = alt_low + size;
  CHECK(sigaltstack(&st, NULL) == 0);
  set(SIGUSR2, where, SA_ONSTACK);
  raise(SIGUSR2);
  CHECK(on_stack == 1);
  set(SIGUSR2, where, 0);
  raise(SIGUSR2);
  CHECK(on_stack == 0);
  CHECK(sigaltstack(NULL, &old) == 0 && old.ss_sp == st.ss_sp && old.ss_size == size && old.ss_flags == 0);
  st.ss_flags = SS_DISABLE;
  CHECK(sigaltstack(&st, NULL) == 0);
  free(alt_low);
}

static void *inherits(void *arg) {
  sigset_t now, pending;
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  CHECK(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGUSR2) == 0);
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGUSR1) == 0); /* what is pending on the maker is not */
  stack_t st;
  CHECK(sigaltstack(NULL, &st) == 0 && st.ss_flags == SS_DISABLE);
  return arg;
}
static void masks(void) {
  sigset_t one = just(SIGUSR1), old, now, pending;
  set(SIGUSR1, count, 0);
  got = 0;
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &one, &old), 0);
  CHECK(sigismember(&old, SIGUSR1) == 0);
  CHECK_RC(pthread_kill(pthread_self(), SIGUSR1), 0);
  CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1 && got == 0);
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, inherits, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  sigset_t open;
  sigemptyset(&open);
  CHECK(sigsuspend(&open) == -1 && errno == EINTR && got == 1); /* delivered in it, and the mask is back */
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  CHECK(sigismember(&now, SIGUSR1) == 1);
  CHECK_RC(pthread_kill(pthread_self(), SIGUSR1), 0);
  struct timespec soon = {600, 0}; /* it is pending already */
  CHECK(ppoll(NULL, 0, &soon, &open) == -1 && errno == EINTR && got == 2);
  CHECK_RC(pthread_kill(pthread_self(), SIGUSR1), 0);
  CHECK(pselect(0, NULL, NULL, NULL, &soon, &open) == -1 && errno == EINTR && got == 3);
  CHECK_RC(pthread_kill(pthread_self(), SIGUSR1), 0);
  siginfo_t info;
  CHECK(sigwaitinfo(&one, &info) == SIGUSR1 && (info.si_code == SI_TKILL || info.si_code == SI_USER) &&
        info.si_pid == me && got == 3);
  union sigval v = {.sival_int = 4711};
  CHECK(sigqueue(me, SIGUSR1, v) == 0);
  CHECK(sigtimedwait(&one, &info, &soon) == SIGUSR1 && info.si_code == SI_QUEUE && info.si_value.sival_int == 4711);
  struct timespec now_ = {0, 0};
  CHECK(sigtimedwait(&one, &info, &now_) == -1 && errno == EAGAIN);
  CHECK(pthread_sigmask(77, &one, NULL) == EINVAL);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
}

/* A signal for the process goes to a thread that has it unblocked; one for a thread to that thread only. */
static volatile pthread_t handled_by;
static void who(int sig) {
  (void)sig;
  handled_by = pthread_self();
  got = got + 1;
}
static void *wait_unblocked(void *arg) {
  sigset_t one = just(SIGUSR2);
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &one, NULL), 0);
  sem_post(arg);
  while (!got)
    poll(NULL, 0, 1);
  return NULL;
}
static void directed(void) {
  sigset_t one = just(SIGUSR2), old;
  sem_t ready;
  sem_init(&ready, 0, 0);
  set(SIGUSR2, who, 0);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &one, &old), 0);
  for (int i = 0; i < 2; i++) {
    got = 0;
    pthread_t t;
    CHECK_RC(pthread_create(&t, NULL, wait_unblocked, &ready), 0);
    while (sem_wait(&ready) != 0)
      ;
    if (i)
      CHECK_RC(pthread_kill(t, SIGUSR2), 0);
    else
      CHECK(kill(me, SIGUSR2) == 0);
    CHECK_RC(pthread_join(t, NULL), 0);
    CHECK(pthread_equal(handled_by, t));
  }
  CHECK(pthread_kill(pthread_self(), 0) == 0 && pthread_kill(pthread_self(), 1000) == EINVAL);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
}

static sem_t timer_ran;
static void on_timer(union sigval v) {
  CHECK(v.sival_int == 99);
  sem_post(&timer_ran);
}
static void timers(void) {
  timer_t id;
  struct sigevent ev = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_int = 99};
  struct itimerspec at = {{0, 1000000}, {0, 1000000}};
  sem_init(&timer_ran, 0, 0);
  CHECK(timer_create(CLOCK_MONOTONIC, &ev, &id) == 0 && timer_settime(id, 0, &at, NULL) == 0);
  for (int i = 0; i < 10; i++)
    while (sem_wait(&timer_ran) != 0)
      ;
  CHECK(timer_delete(id) == 0);
  /* Its last expiries may be threads still, with no signal blocked: they would take what is sent to the process. The C library
   * may keep one for itself. */
  await_threads(2);
  set(SIGALRM, count, 0);
  got = 0;
  struct sigevent direct = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
  direct._sigev_un._tid = (pid_t)syscall(SYS_gettid);
  CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &direct, &id) == 0 && timer_settime(id, 0, &at, NULL) == 0);
  for (int i = 0; i < 4000 && got < 3; i++)
    burn_ns(5000000); /* its clock runs in ticks of the kernel */
  CHECK(got >= 3 && timer_delete(id) == 0);
}

static void children(void) {
  set(SIGUSR1, count, 0);
  sigset_t one = just(SIGUSR1), now, pending;
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
  raise(SIGUSR1);
  pid_t pid = fork();
  if (pid == 0) {
    sigpending(&pending);
    CHECK(!sigismember(&pending, SIGUSR1)); /* not inherited; the mask and the handlers are */
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    CHECK(sigismember(&now, SIGUSR1));
    struct sigaction a;
    CHECK(sigaction(SIGUSR1, NULL, &a) == 0 && a.sa_handler == count);
    _exit(12);
  }
  int st;
  CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 12);
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &one, NULL), 0);
  pid = fork();
  if (pid == 0)
    for (;;)
      pause();
  CHECK(kill(pid, SIGSTOP) == 0 && waitpid(pid, &st, WUNTRACED) == pid && WIFSTOPPED(st) && WSTOPSIG(st) == SIGSTOP);
  CHECK(kill(pid, SIGCONT) == 0 && waitpid(pid, &st, WCONTINUED) == pid && WIFCONTINUED(st));
  CHECK(kill(pid, SIGTERM) == 0 && waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);
}

int main(void) {
  me = getpid();
  CHECK(pipe(fds) == 0);
  for (int round = 0; round < 5; round++) {
    interrupted();
    restarted();
    flags();
    stacks();
    masks();
    directed();
    timers();
    children();
  }
  puts("conformsignals ok");
  return 0;
}
