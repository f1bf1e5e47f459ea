/* fcontext: coroutines as boost and Rust runtimes make them: a switch of stack and callee-saved registers in a few
 * instructions of assembly without unwind information, on stacks from mmap and malloc. Coroutines allocate, lock, block, burn CPU
 * and are handed from thread to thread. */
#include "check.h"
#include <poll.h>
#include <sys/mman.h>

#if !defined(__x86_64__)
#error "written for x86-64"
#endif

/* switch_to(&from, to): push what a callee keeps, store the stack pointer, take the other one, pop, return there */
__attribute__((naked, noinline)) static void switch_to(void **from, void *to) {
  (void)from, (void)to;
  __asm__("pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
          "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
          "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n retq");
}

enum { N = 16, STACK = 65536, STEPS = 250 };

struct coroutine {
  void *sp, *caller;
  char *stack;
  long steps;
  int id;
};
static struct coroutine all[N];
static __thread struct coroutine *now;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, turn[N];
static long total;

__attribute__((noinline)) static void deeper(struct coroutine *c, int depth) {
  volatile char pad[64];
  pad[0] = (char)depth;
  if (depth > 0) {
    deeper(c, depth - 1);
    return;
  }
  char *p = malloc((size_t)(200 + c->id + pad[0]));
  pthread_mutex_lock(&m);
  total++;
  pthread_mutex_unlock(&m);
  if (c->steps % 50 == 7)
    poll(NULL, 0, 1);
  if (c->steps % 25 == 3)
    burn_ns(400000);
  free(p);
  c->steps++;
  switch_to(&c->sp, c->caller);
}

static void body(void) {
  struct coroutine *c = now;
  for (;;)
    deeper(c, c->id);
}

static void make(struct coroutine *c, int id) {
  c->id = id;
  c->stack = id % 2 ? malloc(STACK) : mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  CHECK(c->stack && c->stack != MAP_FAILED);
  uintptr_t top = ((uintptr_t)c->stack + STACK) & ~(uintptr_t)15;
  uintptr_t *sp = (uintptr_t *)top;
  *--sp = 0; /* as if body had been called from nowhere */
  *--sp = (uintptr_t)body;
  for (int i = 0; i < 6; i++)
    *--sp = 0;
  c->sp = sp;
}

static void resume(struct coroutine *c) {
  now = c;
  switch_to(&c->caller, c->sp);
}

static void *drive(void *arg) {
  int me = (int)(intptr_t)arg;
  for (int s = 0; s < STEPS; s++)
    for (int i = 0; i < N; i += 2) {
      int k = (i + me + s) % N; /* in turn by both threads */
      pthread_mutex_lock(&turn[k]);
      resume(&all[k]);
      pthread_mutex_unlock(&turn[k]);
    }
  return NULL;
}

int main(void) {
  for (int i = 0; i < N; i++) {
    make(&all[i], i);
    pthread_mutex_init(&turn[i], NULL);
  }
  pthread_t t[2];
  for (intptr_t i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&t[i], NULL, drive, (void *)i), 0);
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  long steps = 0;
  for (int i = 0; i < N; i++)
    steps += all[i].steps;
  CHECK(steps == 2L * STEPS * N / 2 && total == steps);
  puts("fcontext ok");
  return 0;
}
