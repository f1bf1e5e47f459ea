/* overflow.c: stacks that run out, in the main thread and in others, with a handler on a stack of its own that jumps
 * out of it; then a recursion of 40,000 frames that comes back. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>

static __thread sigjmp_buf out;
static volatile int overflows;

static void on_segv(int sig) {
  (void)sig;
  overflows++;
  siglongjmp(out, 1);
}

__attribute__((noinline)) static long fall(long n) {
  volatile char pad[64];
  pad[0] = (char)n;
  if (n % 64 == 0) {
    void *p = malloc(64);
    free(p);
  }
  return fall(n + 1) + pad[0];
}

__attribute__((noinline)) static long dive(long n) {
  volatile char pad[8];
  pad[0] = 1;
  if (n % 1000 == 0) {
    void *p = malloc(600000); /* sampled, from ever deeper */
    free(p);
  }
  if (n == 0) {
    usleep(5000);
    burn_ns(20000000);
    return 0;
  }
  return dive(n - 1) + pad[0];
}

static void *overflow(void *arg) {
  stack_t alt = {.ss_sp = malloc(65536), .ss_size = 65536};
  CHECK(sigaltstack(&alt, NULL) == 0);
  for (int i = 0; i < 3; i++)
    if (sigsetjmp(out, 1) == 0)
      fall(0);
  alt.ss_flags = SS_DISABLE;
  CHECK(sigaltstack(&alt, NULL) == 0);
  free(alt.ss_sp);
  return arg;
}

int main(void) {
  struct sigaction sa = {.sa_handler = on_segv, .sa_flags = SA_ONSTACK};
  CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
  overflow(NULL);
  for (int i = 0; i < 10; i++) {
    pthread_t t;
    CHECK_RC(pthread_create(&t, NULL, overflow, NULL), 0);
    CHECK_RC(pthread_join(t, NULL), 0);
  }
  CHECK(overflows == 33);
  printf("%d overflows, %ld frames\n", overflows, dive(40000));
  return 4;
}
