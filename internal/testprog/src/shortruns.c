/* shortruns: works 2 ms without a call, then makes calls from one place for as long, each after a microsecond of work: that
 * is too short for a signal to arrive in, and began where the long work began, too. Prints the share of
 * make_calls in the CPU time of both, in percent, to stderr when argv[1] is "truth". */
#include "check.h"
#include <fcntl.h>

enum { TURNS = 300, PIECES = 2000, CALLS = 1500 };
static int null;
static volatile uint64_t sum;

__attribute__((noinline)) static void taste(uint64_t x) { sum += x; } /* so that no function above is a leaf */

__attribute__((noinline)) static void piece(uint64_t x) {
  for (int i = 0; i < 300; i++) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
  }
  taste(x);
}

__attribute__((noinline)) static void work(void) {
  for (int i = 0; i < PIECES; i++)
    piece((uint64_t)i + 1);
  taste(1);
}

__attribute__((noinline)) static void make_calls(void) {
  for (int i = 0; i < CALLS; i++) {
    char c = (char)i;
    piece((uint64_t)i + 1);
    CHECK(write(null, &c, 1) == 1);
  }
  taste(1);
}

int main(int argc, char **argv) {
  int64_t working = 0, calling = 0;
  CHECK((null = open("/dev/null", O_WRONLY)) >= 0);
  for (int turn = 0; turn < TURNS; turn++) {
    int64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    work();
    int64_t t1 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    make_calls();
    working += t1 - t0;
    calling += clock_ns(CLOCK_THREAD_CPUTIME_ID) - t1;
  }
  if (argc > 1 && !strcmp(argv[1], "truth"))
    fprintf(stderr, "%.1f\n", 100.0 * (double)calling / (double)(working + calling));
  puts("shortruns ok");
  return 0;
}
