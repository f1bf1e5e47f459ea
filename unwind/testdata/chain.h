/* chain.h: a tower of calls of a wanted depth through functions with frames of different sizes. Compiled twice, with
 * frame pointers and without; CHAIN is the prefix of the names. */
#include <stdint.h>

#define CHAIN_2(a, b) a##b
#define CHAIN_1(a, b) CHAIN_2(a, b)
#define NAME(n) CHAIN_1(CHAIN, n)

void chain_hook(void);
typedef long (*chain_leaf)(long rounds);

static volatile long NAME(sink);

__attribute__((noinline)) static long NAME(left)(long x) {
  chain_hook();
  return x + NAME(sink);
}
__attribute__((noinline)) static long NAME(right)(long x) {
  volatile long pad[5];
  pad[0] = x;
  chain_hook();
  return pad[0] + NAME(sink);
}

/* The innermost frame of the tower: hooks are called below it from two places in turn. */
__attribute__((noinline)) static long NAME(loop)(long rounds) {
  long s = 0;
  for (long i = 0; i < rounds; i++) s += i & 1 ? NAME(left)(i) : NAME(right)(i);
  return s;
}

typedef long (*NAME(step))(int depth, long rounds);
static const NAME(step) NAME(steps)[16];

#define STEP(n, bytes)                                                           \
  __attribute__((noinline)) static long NAME(f##n)(int depth, long rounds) {      \
    volatile char pad[bytes];                                                     \
    pad[0] = (char)depth;                                                         \
    long r = depth > 0 ? NAME(steps)[depth % 16](depth - 1, rounds) : NAME(loop)(rounds); \
    return r + pad[0] + NAME(sink);                                               \
  }
STEP(0, 8) STEP(1, 24) STEP(2, 40) STEP(3, 56) STEP(4, 72) STEP(5, 120) STEP(6, 16) STEP(7, 200)
STEP(8, 32) STEP(9, 48) STEP(10, 64) STEP(11, 80) STEP(12, 96) STEP(13, 8) STEP(14, 300) STEP(15, 16)
static const NAME(step) NAME(steps)[16] = {
    NAME(f0), NAME(f1), NAME(f2),  NAME(f3),  NAME(f4),  NAME(f5),  NAME(f6),  NAME(f7),
    NAME(f8), NAME(f9), NAME(f10), NAME(f11), NAME(f12), NAME(f13), NAME(f14), NAME(f15)};

long NAME(run)(int depth, long rounds) { return NAME(steps)[depth % 16](depth, rounds); }
