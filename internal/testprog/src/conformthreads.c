/* conformthreads: what POSIX says of threads, locks and cancellation, case by case: results, errors, order. */
#include "check.h"
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <threads.h>

static char order[64];
static void mark(void *arg) { strncat(order, arg, sizeof order - strlen(order) - 1); }

static void *returns(void *arg) { return (char *)arg + 1; }
static void *exits(void *arg) { pthread_exit((char *)arg + 2); }
static void *waits(void *arg) {
  sem_wait(arg);
  return NULL;
}

static void life(void) {
  pthread_t t;
  void *r;
  CHECK_RC(pthread_create(&t, NULL, returns, order), 0);
  CHECK_RC(pthread_join(t, &r), 0);
  CHECK(r == order + 1);
  CHECK_RC(pthread_create(&t, NULL, exits, order), 0);
  CHECK_RC(pthread_join(t, &r), 0);
  CHECK(r == order + 2);
  CHECK_RC(pthread_join(pthread_self(), NULL), EDEADLK);
  sem_t s;
  sem_init(&s, 0, 0);
  CHECK_RC(pthread_create(&t, NULL, waits, &s), 0);
  CHECK_RC(pthread_tryjoin_np(t, &r), EBUSY);
  struct timespec soon = after_ns(CLOCK_REALTIME, 2000000);
  CHECK_RC(pthread_timedjoin_np(t, &r, &soon), ETIMEDOUT);
  char name[16];
  CHECK_RC(pthread_setname_np(t, "fifteen letters"), 0);
  CHECK_RC(pthread_getname_np(t, name, sizeof name), 0);
  CHECK(!strcmp(name, "fifteen letters"));
  CHECK_RC(pthread_setname_np(t, "sixteen  letters"), ERANGE);
  pthread_attr_t a;
  size_t size;
  void *low;
  int detached;
  CHECK_RC(pthread_getattr_np(t, &a), 0);
  CHECK_RC(pthread_attr_getstack(&a, &low, &size), 0);
  CHECK_RC(pthread_attr_getdetachstate(&a, &detached), 0);
  CHECK(size >= 65536 && detached == PTHREAD_CREATE_JOINABLE);
  pthread_attr_destroy(&a);
  sem_post(&s);
  CHECK_RC(pthread_join(t, NULL), 0);
}

static pthread_key_t key_a, key_b;
static int destroyed;
static void again(void *p) { /* sets its value anew twice: called PTHREAD_DESTRUCTOR_ITERATIONS times at most */
  if (++destroyed < 3)
    pthread_setspecific(key_a, p);
}
static void *with_keys(void *arg) {
  pthread_setspecific(key_a, arg);
  pthread_setspecific(key_b, NULL);
  return NULL;
}
static void never(void *p) {
  (void)p;
  CHECK(!"destructor of a NULL value");
}
static int once_runs;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void once_routine(void) {
  usleep(1000);
  once_runs++;
}
static void *call_once_(void *arg) {
  pthread_once(&once, once_routine);
  CHECK(once_runs == 1);
  return arg;
}
static void keys(void) {
  pthread_t t[6];
  destroyed = 0;
  CHECK_RC(pthread_key_create(&key_a, again), 0);
  CHECK_RC(pthread_key_create(&key_b, never), 0);
  CHECK_RC(pthread_create(&t[0], NULL, with_keys, order), 0);
  CHECK_RC(pthread_join(t[0], NULL), 0);
  CHECK(destroyed == 3);
  CHECK_RC(pthread_key_delete(key_a), 0);
  CHECK_RC(pthread_key_delete(key_b), 0);
  for (int i = 0; i < 6; i++)
    CHECK_RC(pthread_create(&t[i], NULL, call_once_, NULL), 0);
  for (int i = 0; i < 6; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(once_runs == 1);
}

static sem_t inside;
static int mode;
static pthread_mutex_t cancel_m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cancel_c = PTHREAD_COND_INITIALIZER;
static void unlock(void *m) {
  CHECK_RC(pthread_mutex_unlock(m), 0); /* a cancelled wait has the lock again */
  mark("u");
}
static void *to_cancel(void *arg) {
  pthread_cleanup_push(mark, "1");
  pthread_cleanup_push(mark, "2");
  if (mode == 1)
    CHECK_RC(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
  if (mode == 2)
    CHECK_RC(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
  if (mode != 3)
    sem_post(&inside);
  if (mode == 0)
    poll(NULL, 0, -1);
  if (mode == 1) {
    poll(NULL, 0, 5); /* no cancellation point now */
    mark("d");
    CHECK_RC(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL), 0);
    for (;;)
      pthread_testcancel();
  }
  if (mode == 2)
    for (volatile int i = 0;; i++)
      ;
  if (mode == 3) {
    CHECK_RC(pthread_mutex_lock(&cancel_m), 0);
    pthread_cleanup_push(unlock, &cancel_m);
    sem_post(&inside);
    for (;;)
      pthread_cond_wait(&cancel_c, &cancel_m);
    pthread_cleanup_pop(0);
  }
  pthread_cleanup_pop(0);
  pthread_cleanup_pop(0);
  return arg;
}
static void cancellation(void) {
  static const char *const want[] = {"21", "d21", "21", "u21"};
  for (mode = 0; mode < 4; mode++) {
    pthread_t t;
    void *r;
    order[0] = 0;
    sem_init(&inside, 0, 0);
    CHECK_RC(pthread_create(&t, NULL, to_cancel, NULL), 0);
    sem_wait(&inside);
    CHECK_RC(pthread_cancel(t), 0);
    CHECK_RC(pthread_join(t, &r), 0);
    CHECK(r == PTHREAD_CANCELED && !strcmp(order, want[mode]));
  }
}

static pthread_mutex_t shared_m;
static void *locks_and_dies(void *arg) {
  CHECK_RC(pthread_mutex_lock(&shared_m), 0);
  return arg;
}
static void *tries(void *arg) { return (void *)(intptr_t)pthread_mutex_trylock(arg); }
static void *unlocks(void *arg) { return (void *)(intptr_t)pthread_mutex_unlock(arg); }
static int in_thread(void *(*f)(void *), void *arg) {
  pthread_t t;
  void *r;
  CHECK_RC(pthread_create(&t, NULL, f, arg), 0);
  CHECK_RC(pthread_join(t, &r), 0);
  return (int)(intptr_t)r;
}
static void mutexes(void) {
  pthread_mutexattr_t a;
  pthread_mutex_t m;
  pthread_mutexattr_init(&a);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&m, &a);
  CHECK_RC(pthread_mutex_unlock(&m), EPERM);
  CHECK_RC(pthread_mutex_lock(&m), 0);
  CHECK_RC(pthread_mutex_lock(&m), EDEADLK);
  CHECK(in_thread(unlocks, &m) == EPERM && in_thread(tries, &m) == EBUSY);
  CHECK_RC(pthread_mutex_destroy(&m), EBUSY);
  CHECK_RC(pthread_mutex_unlock(&m), 0);
  CHECK_RC(pthread_mutex_destroy(&m), 0);
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&m, &a);
  for (int i = 0; i < 3; i++)
    CHECK_RC(i == 1 ? pthread_mutex_trylock(&m) : pthread_mutex_lock(&m), 0);
  for (int i = 0; i < 3; i++) {
    CHECK(in_thread(tries, &m) == EBUSY);
    CHECK_RC(pthread_mutex_unlock(&m), 0);
  }
  CHECK(in_thread(tries, &m) == 0); /* its thread is gone: the lock stays taken */
  pthread_mutexattr_settype(&a, PTHREAD_MUTEX_DEFAULT);
  pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
  for (int pi = 0; pi < 2; pi++) {
    pthread_mutexattr_setprotocol(&a, pi ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
    CHECK_RC(pthread_mutex_init(&shared_m, &a), 0);
    in_thread(locks_and_dies, NULL);
    CHECK_RC(pthread_mutex_lock(&shared_m), EOWNERDEAD);
    CHECK_RC(pthread_mutex_consistent(&shared_m), 0);
    CHECK_RC(pthread_mutex_unlock(&shared_m), 0);
    in_thread(locks_and_dies, NULL);
    CHECK_RC(pthread_mutex_trylock(&shared_m), EOWNERDEAD);
    CHECK_RC(pthread_mutex_unlock(&shared_m), 0);
    CHECK_RC(pthread_mutex_lock(&shared_m), ENOTRECOVERABLE);
    pthread_mutex_destroy(&shared_m);
  }
  pthread_mutexattr_destroy(&a);
}

static pthread_barrier_t barrier;
static int serial, passed;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static void *meets(void *arg) {
  for (int i = 0; i < 20; i++) {
    int r = pthread_barrier_wait(&barrier);
    CHECK(r == 0 || r == PTHREAD_BARRIER_SERIAL_THREAD);
    __atomic_add_fetch(&passed, 1, __ATOMIC_SEQ_CST);
    if (r)
      __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST);
  }
  return arg;
}
static void *writer(void *arg) { return (void *)(intptr_t)pthread_rwlock_trywrlock(arg); }
static void *reader(void *arg) {
  int r = pthread_rwlock_tryrdlock(arg);
  if (r == 0)
    pthread_rwlock_unlock(arg);
  return (void *)(intptr_t)r;
}
static void others(void) {
  pthread_t t[4];
  serial = passed = 0;
  CHECK_RC(pthread_barrier_init(&barrier, NULL, 4), 0);
  CHECK_RC(pthread_barrier_init(&barrier, NULL, 0), EINVAL);
  for (int i = 0; i < 4; i++)
    CHECK_RC(pthread_create(&t[i], NULL, meets, NULL), 0);
  for (int i = 0; i < 4; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(passed == 80 && serial == 20);
  pthread_barrier_destroy(&barrier);
  CHECK_RC(pthread_rwlock_rdlock(&rw), 0);
  CHECK(in_thread(writer, &rw) == EBUSY && in_thread(reader, &rw) == 0);
  CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  CHECK_RC(pthread_rwlock_wrlock(&rw), 0);
  CHECK(in_thread(writer, &rw) == EBUSY && in_thread(reader, &rw) == EBUSY);
  CHECK_RC(pthread_rwlock_wrlock(&rw), EDEADLK);
  CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  sem_t s;
  int v;
  CHECK(sem_init(&s, 0, 1) == 0 && sem_trywait(&s) == 0 && sem_trywait(&s) == -1 && errno == EAGAIN);
  struct timespec bad = {0, 2000000000};
  CHECK(sem_timedwait(&s, &bad) == -1 && errno == EINVAL);
  CHECK(sem_post(&s) == 0 && sem_trywait(&s) == 0);
  CHECK(sem_getvalue(&s, &v) == 0 && v == 0);
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t c = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&m);
  CHECK_RC(pthread_cond_timedwait(&c, &m, &bad), EINVAL);
  struct timespec past = {1, 0};
  CHECK_RC(pthread_cond_timedwait(&c, &m, &past), ETIMEDOUT);
  CHECK(in_thread(tries, &m) == EBUSY); /* and the lock is held again */
  pthread_mutex_unlock(&m);
}

static int c11(void *arg) {
  mtx_t *m = arg;
  CHECK(mtx_lock(m) == thrd_success && mtx_unlock(m) == thrd_success);
  thrd_exit(-7);
}
static void c_threads(void) {
  mtx_t m;
  cnd_t c;
  thrd_t t;
  int r;
  CHECK(mtx_init(&m, mtx_timed) == thrd_success && cnd_init(&c) == thrd_success);
  CHECK(thrd_create(&t, c11, &m) == thrd_success && thrd_join(t, &r) == thrd_success && r == -7);
  CHECK(mtx_lock(&m) == thrd_success && mtx_trylock(&m) == thrd_busy);
  struct timespec soon = after_ns(CLOCK_REALTIME, 1000000), ms = {0, 1000000};
  CHECK(cnd_timedwait(&c, &m, &soon) == thrd_timedout);
  CHECK(mtx_timedlock(&m, &soon) == thrd_timedout && mtx_unlock(&m) == thrd_success);
  CHECK(thrd_sleep(&ms, NULL) == 0);
}

static int atfork_calls;
static void prepare(void) { CHECK(atfork_calls++ % 2 == 0); }
static void after(void) { CHECK(atfork_calls++ % 2 == 1); }
static void forks(void) {
  static int registered;
  if (!registered++)
    CHECK_RC(pthread_atfork(prepare, after, after), 0);
  atfork_calls = 0;
  pid_t pid = fork();
  if (pid == 0) {
    CHECK(atfork_calls == 2);
    pthread_t t; /* a child of a program with threads may have threads again, with glibc */
    CHECK_RC(pthread_create(&t, NULL, returns, order), 0);
    CHECK_RC(pthread_join(t, NULL), 0);
    _exit(3);
  }
  int st;
  CHECK(waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 3 && atfork_calls == 2);
}

int main(void) {
  for (int round = 0; round < 5; round++) {
    life();
    keys();
    cancellation();
    mutexes();
    others();
    c_threads();
    forks();
    burn_ns(5000000);
  }
  puts("conformthreads ok");
  return 0;
}
