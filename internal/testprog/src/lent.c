/* lent: threads that are born with every signal blocked believe so to the end: what they read of masks, what waits for them, what they hand on. Their
 * work is found by signals all the same: `lent SECONDS` computes in such a thread. `lent thread`, `process`, `queue`, `before`:
 * the signal is sent to one. */
#include "check.h"
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

static int has(const sigset_t *s) { return sigismember(s, SIGURG); }
static sigset_t only(int sig) {
  sigset_t s;
  sigemptyset(&s);
  if (sig) sigaddset(&s, sig);
  return s;
}
static sigset_t everything(void) {
  sigset_t s;
  sigfillset(&s);
  return s;
}
static int blocked_now(void) {
  sigset_t now;
  CHECK_RC(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
  return has(&now);
}
static int in_kernel(void) {
  uint64_t mask = 0;
  CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8) == 0);
  return (mask >> (SIGURG - 1)) & 1;
}
static int waiting(void) {
  sigset_t s;
  CHECK(sigpending(&s) == 0);
  return has(&s);
}

/* The mask of a program that is started, by the kernel's word: SigBlk of /proc/self/status. */
static unsigned long long mask_read(FILE *f) {
  char line[256];
  unsigned long long mask = 0;
  int found = 0;
  while (fgets(line, sizeof line, f)) found |= sscanf(line, "SigBlk: %llx", &mask) == 1;
  CHECK(found);
  return mask;
}
static int handed_on(int by_spawn) {
  int p[2], status;
  pid_t pid;
  char *args[] = {"grep", "SigBlk", "/proc/self/status", NULL};
  CHECK(pipe(p) == 0);
  if (by_spawn) {
    posix_spawn_file_actions_t a;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, p[1], 1);
    CHECK_RC(posix_spawnp(&pid, "grep", &a, NULL, args, environ), 0);
    posix_spawn_file_actions_destroy(&a);
  } else if ((pid = fork()) == 0) {
    if (!blocked_now()) _exit(9);
    dup2(p[1], 1);
    execvp("grep", args);
    _exit(8);
  }
  CHECK(pid > 0);
  close(p[1]);
  FILE *f = fdopen(p[0], "r");
  unsigned long long mask = mask_read(f);
  fclose(f);
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return (mask >> (SIGURG - 1)) & 1;
}

static void *child(void *arg) {
  CHECK(blocked_now() == (arg != NULL));
  return NULL;
}
static void has_child(int blocked) {
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, child, blocked ? &t : NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
}

/* What it reads and sets. */
static void *masks(void *arg) {
  sigset_t all = everything(), urg = only(SIGURG), cont = only(SIGCONT), none = only(0), old;
  CHECK(blocked_now());
  has_child(1);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &urg, &old), 0);
  CHECK(has(&old) && blocked_now());
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
  CHECK(has(&old) && blocked_now());
  CHECK(sigprocmask(SIG_UNBLOCK, &cont, &old) == 0 && has(&old) && blocked_now());
  CHECK(sigprocmask(SIG_BLOCK, &cont, NULL) == 0 && blocked_now());
  errno = 0;
  CHECK(sigprocmask(77, &all, NULL) == -1 && errno == EINVAL && blocked_now());
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &urg, &old), 0);
  CHECK(has(&old) && !blocked_now());
  has_child(0);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
  CHECK(!has(&old) && blocked_now());
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &none, &old), 0);
  CHECK(has(&old) && !blocked_now());
  return arg;
}
static void *opens(void *arg) { /* no longer all */
  sigset_t usr = only(SIGUSR1), old;
  CHECK_RC(pthread_sigmask(SIG_UNBLOCK, &usr, &old), 0);
  CHECK(has(&old) && blocked_now() && in_kernel());
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &usr, &old), 0);
  CHECK(has(&old) && blocked_now() && in_kernel());
  return arg;
}
static void *raw(void *arg) { /* as Go's threads begin, and then start others */
  uint64_t nothing = 0;
  sigset_t all = everything(), old;
  CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &nothing, NULL, 8) == 0);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
  CHECK(!has(&old) && blocked_now());
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
  CHECK(!blocked_now() && !in_kernel());
  return arg;
}
static void *some(void *arg) { /* all, and then but ours */
  sigset_t urg = only(SIGURG), old;
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &urg, &old), 0);
  CHECK(has(&old) && blocked_now());
  CHECK(pthread_kill(pthread_self(), SIGURG) == 0 && waiting());
  siginfo_t info;
  CHECK(sigwaitinfo(&urg, &info) == SIGURG && (info.si_code == SI_TKILL || info.si_code == SI_USER)); /* glibc makes the one the other */
  CHECK(blocked_now() && !waiting());
  return arg;
}

/* What is sent to it waits, for it or for whoever waits for it. */
static const char *how;
static sem_t sent_it;
static pthread_t receiver;
static pid_t receiver_tid; /* 0: not there yet */
static void send_to_it(void) {
  union sigval v = {.sival_int = 4711};
  if (!strcmp(how, "thread")) { /* sleeping in a call, as it is: nobody else has sent it one that would take this one's place */
    CHECK_RC(pthread_kill(receiver, SIGURG), 0);
    CHECK(sem_post(&sent_it) == 0);
  } else if (!strcmp(how, "process")) {
    CHECK(kill(getpid(), SIGURG) == 0); /* main has it blocked as well */
  } else {
    CHECK(sigqueue(getpid(), SIGURG, v) == 0);
  }
}
static void *waits(void *arg) { /* one was sent before it was born */
  sigset_t urg = only(SIGURG);
  CHECK(waiting() && blocked_now());
  CHECK(sigwaitinfo(&urg, NULL) == SIGURG && !waiting() && blocked_now());
  return arg;
}
static void *sent(void *arg) {
  sigset_t urg = only(SIGURG);
  siginfo_t info;
  __atomic_store_n(&receiver_tid, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
  if (!strcmp(how, "thread"))
    CHECK(sem_wait(&sent_it) == 0);
  else
    send_to_it();
  CHECK(waiting() && blocked_now());
  has_child(1);
  CHECK(sigwaitinfo(&urg, &info) == SIGURG && info.si_pid == getpid());
  if (!strcmp(how, "queue")) CHECK(info.si_code == SI_QUEUE && info.si_value.sival_int == 4711);
  else CHECK(info.si_code == SI_USER || info.si_code == SI_TKILL); /* glibc makes the one the other */
  CHECK(!waiting() && blocked_now());
  return arg;
}
static void sends(const char *what) {
  sigset_t all = everything(), old;
  how = what;
  receiver_tid = 0;
  CHECK(sem_init(&sent_it, 0, 0) == 0);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
  if (!strcmp(how, "before")) CHECK(kill(getpid(), SIGURG) == 0);
  CHECK_RC(pthread_create(&receiver, NULL, strcmp(how, "before") ? sent : waits, NULL), 0);
  if (!strcmp(how, "thread")) {
    while (!__atomic_load_n(&receiver_tid, __ATOMIC_ACQUIRE)) usleep(200);
    await_asleep(receiver_tid);
    send_to_it();
  }
  CHECK_RC(pthread_join(receiver, NULL), 0);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
}

static void *hands_on(void *arg) {
  CHECK(handed_on(0) == 1);
  CHECK(blocked_now());
  CHECK(handed_on(1) == 1);
  CHECK(blocked_now());
  CHECK(execv("/nowhere", environ) == -1 && errno == ENOENT && blocked_now());
  return arg;
}

/* No hook is called in here, and the clock is not either. */
static volatile unsigned long sink;
__attribute__((noinline)) static void unseen_work(void) {
  for (unsigned long i = 0; i < 20000000; i++) sink += i * i;
}
static double seconds;
static void *works(void *arg) {
  CHECK(blocked_now());
  for (int64_t until = mono_ns() + (int64_t)(seconds * 1e9); mono_ns() < until;) unseen_work();
  CHECK(blocked_now());
  return arg;
}

static void born(void *(*f)(void *)) {
  sigset_t all = everything(), old;
  pthread_t t;
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, &old), 0);
  CHECK_RC(pthread_create(&t, NULL, f, NULL), 0);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
}

int main(int argc, char **argv) {
  if (argc > 1 && strspn(argv[1], "0123456789.")) {
    seconds = atof(argv[1]);
    born(works);
    return 0;
  }
  if (argc > 1) {
    sends(argv[1]);
    sends("process"); /* nobody lends any more */
    sends("thread");
    sends("queue");
  }
  born(masks);
  born(opens);
  born(raw);
  born(some);
  born(hands_on);
  puts("lent ok");
  return 0;
}
