/* oddstacks: memory is asked for, a size per place, on stacks that a profiler has trouble with: alternate signal stacks,
 * coroutines, a stack that the program allocated, one of 100,000 frames, one whose chain is broken. */
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone))
#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static volatile size_t sink;

NOINLINE static void ask(size_t bytes) {
  void *volatile p = malloc(bytes);
  free(p);
  sink++;
}

static void *memory(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(p != MAP_FAILED);
  return p;
}

/* frames of more than a hundred bytes */
NOINLINE static void deep(int n, size_t bytes) {
  volatile char pad[96];
  pad[n % 96] = 1;
  if (n)
    deep(n - 1, bytes);
  else
    ask(bytes);
  sink += (size_t)pad[0];
}

/* ---- handlers ---- */
static volatile int handler_depth;
static volatile size_t handler_bytes;
NOINLINE static void on_usr1(int sig) {
  (void)sig;
  deep(handler_depth, handler_bytes);
  sink++;
}
NOINLINE static void raised_in(int depth, size_t bytes) {
  handler_depth = depth;
  handler_bytes = bytes;
  CHECK(raise(SIGUSR1) == 0);
  sink++;
}
static void alternate(size_t bytes, unsigned flags) {
  stack_t s = {.ss_sp = memory(bytes), .ss_size = bytes, .ss_flags = (int)flags};
  CHECK(sigaltstack(&s, NULL) == 0);
}

/* ---- coroutines ---- */
static ucontext_t outside, coroutine;
static void body(void) {
  deep(20, 100003);
  raised_in(20, 100004);
  swapcontext(&coroutine, &outside);
}

/* ---- threads ---- */
NOINLINE static void *on_own_stack(void *x) {
  deep(20, 100005);
  sink++;
  return x;
}

/* ---- a broken chain: the return address of the frame above is not one ---- */
__attribute__((noinline, noclone, optimize("no-omit-frame-pointer"))) static void broken(uintptr_t wrong, size_t bytes) {
  uintptr_t *volatile ret = (uintptr_t *)__builtin_frame_address(0) + 1;
  uintptr_t right = *ret;
  *(volatile uintptr_t *)ret = wrong;
  ask(bytes);
  *(volatile uintptr_t *)ret = right;
}

int main(void) {
  struct sigaction sa = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK};
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  ask(100000); /* an ordinary stack, to compare with */
  alternate(1 << 20, 0);
  raised_in(2000, 100001); /* deeper than could be found by asking for pages */
  alternate(1 << 18, SS_AUTODISARM);
  raised_in(20, 100002);
  alternate(1 << 18, 0);

  CHECK(getcontext(&coroutine) == 0);
  coroutine.uc_stack.ss_sp = memory(1 << 16);
  coroutine.uc_stack.ss_size = 1 << 16;
  coroutine.uc_link = NULL;
  makecontext(&coroutine, body, 0);
  CHECK(swapcontext(&outside, &coroutine) == 0);

  pthread_attr_t a;
  pthread_t t;
  CHECK_RC(pthread_attr_init(&a), 0);
  CHECK_RC(pthread_attr_setstack(&a, memory(1 << 18), 1 << 18), 0);
  CHECK_RC(pthread_create(&t, &a, on_own_stack, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);

  CHECK_RC(pthread_attr_setstack(&a, memory(1 << 26), 1 << 26), 0);
  pthread_attr_destroy(&a);
  CHECK_RC(pthread_attr_init(&a), 0);
  CHECK_RC(pthread_attr_setstacksize(&a, 64 << 20), 0);
  void *very_deep(void *);
  CHECK_RC(pthread_create(&t, &a, very_deep, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);

  broken(0x4141414141414141, 100007);
  broken((uintptr_t)&sink, 100008);
  broken(1, 100009);
  puts("oddstacks ok");
  return 0;
}

NOINLINE void *very_deep(void *x) {
  deep(100000, 100006);
  sink++;
  return x;
}
