/* errno: allocation, locking and successful calls leave errno alone, whatever the sampler does meanwhile. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static sem_t s;
#define KEEPS(expr)        \
  do {                     \
    errno = 1234;          \
    expr;                  \
    CHECK(errno == 1234);  \
  } while (0)

static void *body(void *arg) {
  int64_t end = mono_ns() + 300000000;
  for (unsigned i = 0; mono_ns() < end; i++) {
    void *p, *q;
    KEEPS(p = malloc(i % 3000));
    KEEPS(p = realloc(p, i % 5000 + 1));
    KEEPS(free(p));
    KEEPS(p = calloc(3, i % 700));
    KEEPS(free(p));
    KEEPS(CHECK_RC(posix_memalign(&q, 64, i % 900), 0));
    KEEPS(free(q));
    KEEPS(pthread_mutex_lock(&m));
    KEEPS(pthread_cond_signal(&c));
    KEEPS(pthread_mutex_unlock(&m));
    KEEPS(sem_post(&s));
    KEEPS(sem_wait(&s));
    if (i % 16 == 0) {
      KEEPS(free(malloc(400000))); /* mmap and munmap inside */
      KEEPS(poll(NULL, 0, 0));
    }
    if (i % 64 == 0)
      KEEPS(burn_ns(300000));
  }
  return arg;
}

int main(void) {
  CHECK(sem_init(&s, 0, 8) == 0);
  pthread_t t[3];
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_create(&t[i], NULL, body, NULL), 0);
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  /* and failing calls report their own */
  errno = 0;
  CHECK(read(-1, &t, 1) == -1 && errno == EBADF);
  errno = 0;
  CHECK(poll((struct pollfd *)8, 1, 0) == -1 && errno == EFAULT);
  errno = 0;
  CHECK(nanosleep(&(struct timespec){0, -5}, NULL) == -1 && errno == EINVAL);
  puts("errno ok");
  return 0;
}
