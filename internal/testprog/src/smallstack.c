/* smallstack: threads with 16 KiB of stack that allocate, lock, block and burn CPU, to be signalled there. */
#include "check.h"
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

static void *body(void *arg) {
  for (int i = 0; i < 15; i++) {
    burn_ns(1000000);
    char *p = malloc(100000);
    p[0] = 1;
    CHECK(poll(NULL, 0, 1) == 0);
    pthread_mutex_lock(&lock);
    total += p[0];
    pthread_mutex_unlock(&lock);
    free(p);
  }
  return arg;
}

int main(void) {
  enum { STACK = 16384, GUARD = 4096 };
  CHECK(STACK >= PTHREAD_STACK_MIN);
  for (int round = 0; round < 3; round++) {
    pthread_t t[6];
    void *stack[6];
    for (int i = 0; i < 6; i++) {
      pthread_attr_t at;
      pthread_attr_init(&at);
      if (i % 2) { /* the program's own memory, with a guard page below that nobody else may touch */
        char *m = mmap(NULL, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(m != MAP_FAILED);
        CHECK(mprotect(m, GUARD, PROT_NONE) == 0);
        CHECK_RC(pthread_attr_setstack(&at, m + GUARD, STACK), 0);
        stack[i] = m;
      } else {
        CHECK_RC(pthread_attr_setstacksize(&at, STACK), 0);
        stack[i] = NULL;
      }
      CHECK_RC(pthread_create(&t[i], &at, body, NULL), 0);
      pthread_attr_destroy(&at);
    }
    for (int i = 0; i < 6; i++) {
      CHECK_RC(pthread_join(t[i], NULL), 0);
      if (stack[i])
        munmap(stack[i], STACK + GUARD);
    }
  }
  CHECK(total == 3 * 6 * 15);
  puts("smallstack ok");
  return 0;
}
