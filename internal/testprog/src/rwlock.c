/* rwlock: readers share, writers exclude, both kinds of preference, contended. */
#include "check.h"

static pthread_rwlock_t rw;
static long a, b;
static int inside, most;
static pthread_barrier_t together;
static pid_t late;

static void *reader(void *arg) {
  for (int i = 0; i < 400; i++) {
    CHECK_RC(pthread_rwlock_rdlock(&rw), 0);
    int n = __atomic_add_fetch(&inside, 1, __ATOMIC_RELAXED);
    if (n > most)
      most = n;
    CHECK(a == b);
    if (i % 50 == 0)
      usleep(100);
    __atomic_sub_fetch(&inside, 1, __ATOMIC_RELAXED);
    CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  }
  return arg;
}

static void *writer(void *arg) {
  for (int i = 0; i < 200; i++) {
    CHECK_RC(pthread_rwlock_wrlock(&rw), 0);
    CHECK(__atomic_load_n(&inside, __ATOMIC_RELAXED) == 0);
    a++;
    if (i % 20 == 0)
      usleep(200);
    b++;
    CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  }
  return arg;
}

static void *share(void *arg) {
  CHECK_RC(pthread_rwlock_rdlock(&rw), 0);
  pthread_barrier_wait(&together); /* deadlocks unless both hold it at once */
  CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  return arg;
}

static void *write_late(void *arg) {
  __atomic_store_n(&late, gettid(), __ATOMIC_SEQ_CST);
  CHECK_RC(pthread_rwlock_wrlock(&rw), 0);
  a++, b++;
  CHECK_RC(pthread_rwlock_unlock(&rw), 0);
  return arg;
}

int main(void) {
  CHECK_RC(pthread_barrier_init(&together, NULL, 2), 0);
  for (int pref = 0; pref < 2; pref++) {
    pthread_rwlockattr_t at;
    pthread_rwlockattr_init(&at);
    CHECK_RC(pthread_rwlockattr_setkind_np(
                 &at, pref ? PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP : PTHREAD_RWLOCK_PREFER_READER_NP),
             0);
    CHECK_RC(pthread_rwlock_init(&rw, &at), 0);
    a = b = 0;
    pthread_t t[5];
    for (int i = 0; i < 5; i++)
      CHECK_RC(pthread_create(&t[i], NULL, i < 3 ? reader : writer, NULL), 0);
    for (int i = 0; i < 5; i++)
      CHECK_RC(pthread_join(t[i], NULL), 0);
    CHECK(a == 400 && b == 400 && most >= 1);
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_create(&t[i], NULL, share, NULL), 0);
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_join(t[i], NULL), 0);
    late = 0; /* one that waits for certain */
    CHECK_RC(pthread_rwlock_rdlock(&rw), 0);
    CHECK_RC(pthread_create(&t[0], NULL, write_late, NULL), 0);
    while (!__atomic_load_n(&late, __ATOMIC_SEQ_CST))
      usleep(100);
    await_asleep(late);
    usleep(1000);
    CHECK(a == 400 && b == 400);
    CHECK_RC(pthread_rwlock_unlock(&rw), 0);
    CHECK_RC(pthread_join(t[0], NULL), 0);
    CHECK(a == 401 && b == 401);
    CHECK_RC(pthread_rwlock_destroy(&rw), 0);
  }
  puts("rwlock ok");
  return 0;
}
