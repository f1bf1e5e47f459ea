/* coroutines: swapcontext between stacks from the heap, in two threads, with allocation, locks, sleeps and CPU
 * work on them; a coroutine may be resumed by another thread than it began on. */
#include "check.h"
#include <poll.h>
#include <ucontext.h>

enum { N = 8, STACK = 32768, SWITCHES = 4000 };
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

struct group {
  ucontext_t main, co[N];
  char *stack[N];
  long count[N];
  int current;
};
static __thread struct group *mine;

__attribute__((noinline)) static void step(struct group *g, int i, int depth) {
  volatile char pad[128];
  pad[0] = (char)depth;
  if (depth) {
    step(g, i, depth - 1);
    return;
  }
  char *p = malloc(100 + (size_t)i);
  p[0] = pad[0];
  pthread_mutex_lock(&m);
  g->count[i] += 1 + p[0];
  pthread_mutex_unlock(&m);
  free(p);
  if (g->count[i] % 500 == 0) {
    burn_ns(1000000);
    poll(NULL, 0, 1);
  }
  swapcontext(&g->co[i], &g->main);
}

static void body(void) {
  struct group *g = mine;
  int i = g->current;
  for (;;)
    step(g, i, i * 3);
}

static void *drive(void *arg) {
  struct group *g = arg;
  mine = g;
  for (int s = 0; s < SWITCHES; s++) {
    g->current = s % N;
    CHECK(swapcontext(&g->main, &g->co[g->current]) == 0);
  }
  return arg;
}

int main(void) {
  pthread_t t[2];
  struct group *g[2];
  for (int k = 0; k < 2; k++) {
    g[k] = calloc(1, sizeof *g[k]);
    for (int i = 0; i < N; i++) {
      g[k]->stack[i] = malloc(STACK);
      CHECK(getcontext(&g[k]->co[i]) == 0);
      g[k]->co[i].uc_stack.ss_sp = g[k]->stack[i];
      g[k]->co[i].uc_stack.ss_size = STACK;
      g[k]->co[i].uc_link = &g[k]->main;
      makecontext(&g[k]->co[i], body, 0);
    }
  }
  for (int round = 0; round < 2; round++) { /* the second round resumes on the other thread */
    for (int k = 0; k < 2; k++)
      CHECK_RC(pthread_create(&t[k], NULL, drive, g[(k + round) % 2]), 0);
    for (int k = 0; k < 2; k++)
      CHECK_RC(pthread_join(t[k], NULL), 0);
  }
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < N; i++) {
      CHECK(g[k]->count[i] == 2 * SWITCHES / N);
      free(g[k]->stack[i]);
    }
  puts("coroutines ok");
  return 0;
}
