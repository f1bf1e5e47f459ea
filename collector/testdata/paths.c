/* paths: allocates on ever other stacks. The size of each allocation says on which: 256 + two bits a frame, the outermost
 * in the lowest. */
#include <stdlib.h>
#include <time.h>

#define DEPTH 8
#define NOINLINE __attribute__((noinline, noclone))

static void *volatile sink;
static unsigned down(unsigned path, int left);

#define STEP(n)                                      \
  NOINLINE static unsigned p##n(unsigned path, int left) { return down(path, left) + 1; }
STEP(0)
STEP(1)
STEP(2)
STEP(3)

static inline __attribute__((always_inline)) unsigned step(unsigned path, int left) {
  switch (path >> 2 * (DEPTH - left) & 3) {
  case 0: return p0(path, left - 1);
  case 1: return p1(path, left - 1);
  case 2: return p2(path, left - 1);
  default: return p3(path, left - 1);
  }
}

NOINLINE static unsigned down(unsigned path, int left) {
  if (left)
    return step(path, left) + 1;
  sink = malloc(256 + path);
  free(sink);
  return 1;
}

int main(void) {
  unsigned x = 12345;
  for (int i = 0; i < 60000; i++) {
    x = x * 1664525u + 1013904223u;
    down(x >> 8 & ((1u << 2 * DEPTH) - 1), DEPTH);
    if (i % 50 == 0)
      nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  return 0;
}
