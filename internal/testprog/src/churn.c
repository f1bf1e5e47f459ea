/* churn: argv[1] short threads, 16 at a time, each with a name of its own kind, an allocation, a contended lock and
 * a sleep of 200 us; every seventh is detached, every ninth is cancelled. */
#include "check.h"
#include <poll.h>

enum { BATCH = 16 };
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long done, cancelled;

static void *body(void *arg) {
  intptr_t n = (intptr_t)arg;
  char name[16];
  int old;
  CHECK_RC(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old), 0);
  snprintf(name, sizeof name, "churn-%d", (int)(n % 10));
  CHECK_RC(pthread_setname_np(pthread_self(), name), 0);
  char *volatile p = malloc(1000 + (size_t)(n % 1000));
  p[0] = 1;
  pthread_mutex_lock(&m);
  done += n % 9 != 0 && p[0];
  pthread_mutex_unlock(&m);
  free(p);
  usleep(200);
  if (n % 9 == 0) {
    CHECK_RC(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old), 0);
    poll(NULL, 0, -1); /* until cancelled */
  }
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  long n = atol(argv[1]);
  for (long i = 0; i < n; i += BATCH) {
    pthread_t t[BATCH];
    for (int k = 0; k < BATCH; k++)
      CHECK_RC(pthread_create(&t[k], NULL, body, (void *)(intptr_t)(i + k)), 0);
    for (int k = 0; k < BATCH; k++) {
      long id = i + k;
      if (id % 9 == 0) {
        CHECK_RC(pthread_cancel(t[k]), 0);
      } else if (id % 7 == 0) {
        CHECK_RC(pthread_detach(t[k]), 0);
        continue;
      }
      void *ret;
      CHECK_RC(pthread_join(t[k], &ret), 0);
      if (id % 9 == 0) {
        CHECK(ret == PTHREAD_CANCELED);
        cancelled++;
      } else
        CHECK(ret == (void *)(intptr_t)id);
    }
  }
  await_threads(1); /* those that are detached end, too */
  CHECK(done == n - cancelled);
  printf("%ld threads, %ld cancelled\n", n, cancelled);
  return 0;
}
