/* altstack: handlers on small alternate stacks: one that blocks, and one that recovers from stack overflow. */
#include "check.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/resource.h>

static sigjmp_buf back;
static char *alt;
static size_t alt_bytes;
static volatile int on_alt, overflows;

static int inside(void) {
  char here;
  return &here >= alt && &here < alt + alt_bytes;
}

static void on_usr1(int sig) {
  (void)sig;
  int e = errno;
  if (inside())
    on_alt++;
  poll(NULL, 0, 1);
  burn_ns(300000);
  errno = e;
}

static void on_segv(int sig) {
  (void)sig;
  overflows++;
  siglongjmp(back, 1);
}

__attribute__((noinline)) static int endless(int n) {
  volatile char pad[4000];
  pad[n % 4000] = (char)n;
  return endless(n + 1) + pad[n % 4000];
}

static void *thread(void *arg) {
  alt_bytes = getauxval(AT_MINSIGSTKSZ);
  if (alt_bytes < 2048)
    alt_bytes = 2048;
  alt_bytes = alt_bytes * 2 + 6144;
  alt = malloc(alt_bytes);
  stack_t st = {.ss_sp = alt, .ss_size = alt_bytes};
  CHECK(sigaltstack(&st, NULL) == 0);
  for (int i = 0; i < 100; i++) {
    CHECK(raise(SIGUSR1) == 0);
    burn_ns(500000);
  }
  CHECK(on_alt == 100);
  for (volatile int i = 0; i < 5; i++) {
    if (sigsetjmp(back, 1) == 0)
      endless(i);
    CHECK(poll(NULL, 0, 1) == 0);
  }
  CHECK(overflows == 5);
  stack_t now;
  CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == alt && now.ss_size == alt_bytes);
  now.ss_flags = SS_DISABLE;
  CHECK(sigaltstack(&now, NULL) == 0);
  free(alt);
  return arg;
}

int main(void) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  struct sigaction sa = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK};
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  sa.sa_handler = on_segv;
  CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
  pthread_attr_t at;
  pthread_attr_init(&at);
  CHECK_RC(pthread_attr_setstacksize(&at, 256 << 10), 0);
  pthread_t t;
  CHECK_RC(pthread_create(&t, &at, thread, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  puts("altstack ok");
  return 0;
}
