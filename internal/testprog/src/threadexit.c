/* threadexit: pthread_exit from deep frames with cleanup handlers and destructors that allocate and lock; the
 * main thread leaves first and the process ends with its last thread. */
#include "check.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static int cleanups, destructions;

static void destroy(void *p) {
  /* POSIX calls destructors again when they set the value again: twice here */
  if (*(int *)p == 0) {
    *(int *)p = 1;
    CHECK_RC(pthread_setspecific(key, p), 0);
    return;
  }
  free(p);
  pthread_mutex_lock(&lock);
  destructions++;
  pthread_mutex_unlock(&lock);
  free(malloc(5000));
  usleep(500);
}

static void cleanup(void *arg) {
  pthread_mutex_lock(&lock);
  cleanups += *(int *)arg;
  pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static int down(int n) {
  volatile char pad[64];
  pad[0] = (char)n;
  int one = 1;
  if (n == 0)
    pthread_exit((void *)77);
  int r;
  pthread_cleanup_push(cleanup, &one);
  r = down(n - 1);
  pthread_cleanup_pop(1);
  return r + pad[0];
}

static void *body(void *arg) {
  CHECK_RC(pthread_setspecific(key, calloc(1, sizeof(int))), 0);
  burn_ns(2000000);
  down(20);
  return arg;
}

static void *last(void *arg) {
  pthread_t main_thread = *(pthread_t *)arg;
  void *ret;
  CHECK_RC(pthread_join(main_thread, &ret), 0);
  CHECK(ret == (void *)5);
  usleep(10000);
  puts("the last thread ends the process");
  return NULL;
}

int main(void) {
  CHECK_RC(pthread_key_create(&key, destroy), 0);
  for (int i = 0; i < 10; i++) {
    pthread_t t[8];
    for (int j = 0; j < 8; j++)
      CHECK_RC(pthread_create(&t[j], NULL, body, NULL), 0);
    for (int j = 0; j < 8; j++) {
      void *ret;
      CHECK_RC(pthread_join(t[j], &ret), 0);
      CHECK(ret == (void *)77);
    }
  }
  CHECK(cleanups == 10 * 8 * 20 && destructions == 80);
  static pthread_t self;
  self = pthread_self();
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, last, &self), 0);
  CHECK_RC(pthread_detach(t), 0);
  puts("threadexit ok");
  pthread_exit((void *)5);
}
