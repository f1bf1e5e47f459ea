/* mutexkinds: every kind of mutex answers as POSIX says: normal, recursive, errorcheck, adaptive, robust with
 * the death of its owner (thread and process), priority inheritance, shared between processes. */
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>

static pthread_mutex_t *fresh(int type, int robust, int pshared, int protocol) {
  pthread_mutex_t *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(m != MAP_FAILED);
  pthread_mutexattr_t at;
  CHECK_RC(pthread_mutexattr_init(&at), 0);
  CHECK_RC(pthread_mutexattr_settype(&at, type), 0);
  CHECK_RC(pthread_mutexattr_setrobust(&at, robust), 0);
  CHECK_RC(pthread_mutexattr_setpshared(&at, pshared), 0);
  CHECK_RC(pthread_mutexattr_setprotocol(&at, protocol), 0);
  CHECK_RC(pthread_mutex_init(m, &at), 0);
  pthread_mutexattr_destroy(&at);
  return m;
}

struct share {
  pthread_mutex_t *m;
  volatile long *n;
  int times;
};

static void *add(void *arg) {
  struct share *s = arg;
  for (int i = 0; i < s->times; i++) {
    CHECK_RC(pthread_mutex_lock(s->m), 0);
    long was = *s->n;
    if (i % 64 == 0)
      usleep(20); /* so that others really wait */
    *s->n = was + 1;
    CHECK_RC(pthread_mutex_unlock(s->m), 0);
  }
  return NULL;
}

static void contend(const char *name, pthread_mutex_t *m) {
  volatile long n = 0;
  struct share s = {m, &n, 2000};
  pthread_t t[4];
  for (int i = 0; i < 4; i++)
    CHECK_RC(pthread_create(&t[i], NULL, add, &s), 0);
  for (int i = 0; i < 4; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(n == 8000);
  CHECK_RC(pthread_mutex_destroy(m), 0);
  printf("%s: %ld\n", name, n);
}

static void *take_and_die(void *m) {
  CHECK_RC(pthread_mutex_lock(m), 0);
  return NULL;
}

static void *try_from_other(void *m) { return (void *)(intptr_t)pthread_mutex_trylock(m); }
static void *unlock_from_other(void *m) { return (void *)(intptr_t)pthread_mutex_unlock(m); }

static int in_thread(void *(*f)(void *), void *arg) {
  pthread_t t;
  void *ret;
  CHECK_RC(pthread_create(&t, NULL, f, arg), 0);
  CHECK_RC(pthread_join(t, &ret), 0);
  return (int)(intptr_t)ret;
}

static void robust_mutex(int type, int protocol) {
  pthread_mutex_t *m = fresh(type, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_SHARED, protocol);
  in_thread(take_and_die, m);
  CHECK_RC(pthread_mutex_lock(m), EOWNERDEAD);
  CHECK_RC(pthread_mutex_consistent(m), 0);
  CHECK_RC(pthread_mutex_unlock(m), 0);
  CHECK_RC(pthread_mutex_lock(m), 0);
  CHECK_RC(pthread_mutex_unlock(m), 0);
  /* the owner's process dies while we wait */
  int fd[2];
  CHECK(pipe(fd) == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK_RC(pthread_mutex_lock(m), 0);
    CHECK(write(fd[1], "x", 1) == 1);
    usleep(20000);
    _exit(0);
  }
  char c;
  CHECK(read(fd[0], &c, 1) == 1);
  CHECK_RC(pthread_mutex_lock(m), EOWNERDEAD);
  CHECK(waitpid(pid, NULL, 0) == pid);
  CHECK_RC(pthread_mutex_unlock(m), 0); /* not made consistent */
  CHECK_RC(pthread_mutex_lock(m), ENOTRECOVERABLE);
  CHECK_RC(pthread_mutex_trylock(m), ENOTRECOVERABLE);
  close(fd[0]);
  close(fd[1]);
  /* trylock sees the death too */
  m = fresh(type, PTHREAD_MUTEX_ROBUST, PTHREAD_PROCESS_PRIVATE, protocol);
  in_thread(take_and_die, m);
  CHECK_RC(pthread_mutex_trylock(m), EOWNERDEAD);
  CHECK_RC(pthread_mutex_consistent(m), 0);
  CHECK_RC(pthread_mutex_unlock(m), 0);
}

int main(void) {
  enum { STALLED = PTHREAD_MUTEX_STALLED, PRIVATE = PTHREAD_PROCESS_PRIVATE, SHARED = PTHREAD_PROCESS_SHARED };
  contend("normal", fresh(PTHREAD_MUTEX_NORMAL, STALLED, PRIVATE, PTHREAD_PRIO_NONE));
  contend("recursive", fresh(PTHREAD_MUTEX_RECURSIVE, STALLED, PRIVATE, PTHREAD_PRIO_NONE));
  contend("errorcheck", fresh(PTHREAD_MUTEX_ERRORCHECK, STALLED, PRIVATE, PTHREAD_PRIO_NONE));
  contend("adaptive", fresh(PTHREAD_MUTEX_ADAPTIVE_NP, STALLED, PRIVATE, PTHREAD_PRIO_NONE));
  contend("inherit", fresh(PTHREAD_MUTEX_NORMAL, STALLED, PRIVATE, PTHREAD_PRIO_INHERIT));
  contend("robust", fresh(PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ROBUST, PRIVATE, PTHREAD_PRIO_NONE));

  pthread_mutex_t *m = fresh(PTHREAD_MUTEX_RECURSIVE, STALLED, PRIVATE, PTHREAD_PRIO_NONE);
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_mutex_lock(m), 0);
  CHECK_RC(pthread_mutex_trylock(m), 0);
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_mutex_unlock(m), 0);
  CHECK_RC(in_thread(try_from_other, m), EBUSY);
  CHECK_RC(pthread_mutex_unlock(m), 0);
  CHECK_RC(pthread_mutex_unlock(m), EPERM);

  m = fresh(PTHREAD_MUTEX_ERRORCHECK, STALLED, PRIVATE, PTHREAD_PRIO_NONE);
  CHECK_RC(pthread_mutex_unlock(m), EPERM);
  CHECK_RC(pthread_mutex_lock(m), 0);
  CHECK_RC(pthread_mutex_lock(m), EDEADLK);
  CHECK_RC(pthread_mutex_trylock(m), EBUSY);
  CHECK_RC(in_thread(unlock_from_other, m), EPERM);
  CHECK_RC(pthread_mutex_unlock(m), 0);

  m = fresh(PTHREAD_MUTEX_ERRORCHECK, STALLED, PRIVATE, PTHREAD_PRIO_INHERIT);
  CHECK_RC(pthread_mutex_lock(m), 0);
  CHECK_RC(pthread_mutex_lock(m), EDEADLK);
  CHECK_RC(pthread_mutex_unlock(m), 0);

  robust_mutex(PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE);
  robust_mutex(PTHREAD_MUTEX_ERRORCHECK, PTHREAD_PRIO_NONE);
  robust_mutex(PTHREAD_MUTEX_RECURSIVE, PTHREAD_PRIO_INHERIT);
  puts("robust ok");

  /* between processes */
  m = fresh(PTHREAD_MUTEX_NORMAL, STALLED, SHARED, PTHREAD_PRIO_NONE);
  volatile long *n = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(n != MAP_FAILED);
  struct share s = {m, n, 1500};
  for (int i = 0; i < 3; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      add(&s);
      _exit(0);
    }
  }
  int st;
  for (int i = 0; i < 3; i++)
    CHECK(wait(&st) > 0 && WIFEXITED(st) && WEXITSTATUS(st) == 0);
  CHECK(*n == 4500);
  puts("mutexkinds ok");
  return 0;
}
