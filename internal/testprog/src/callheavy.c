/* callheavy: two threads that work some 10 us in work_between_calls, then make a cheap call in make_call, over and
 * over: nearly all CPU time is in the work, however often calls are made. Prints the truth, measured: the share
 * of work_between_calls in its own thread's CPU time, in percent, to stderr when argv[1] is "truth". */
#include "check.h"
#include <fcntl.h>
#include <poll.h>

enum { ROUNDS = 60000, TURNS = 60 };
static int null;
static _Thread_local volatile uint64_t sum;
static double share[2];

__attribute__((noinline)) static void taste(uint64_t x) { sum += x; } /* so that no function above is a leaf */

__attribute__((noinline)) static void work_between_calls(uint64_t x) {
  for (int part = 0; part < 4; part++) {
    for (int i = 0; i < 1200; i++) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
    }
    taste(x);
  }
}

__attribute__((noinline)) static void make_call(int i) {
  char c = (char)i;
  if (i % 4 == 0)
    CHECK(poll(NULL, 0, 0) == 0);
  else
    CHECK(write(null, &c, 1) == 1);
  taste(1);
}

static void *body(void *arg) {
  /* The truth, without a clock in the loop: the same work without the calls, then both; in turns, since a machine's speed
   * changes. */
  int64_t alone = 0, both = 0;
  for (int turn = 0; turn < TURNS; turn++) {
    int64_t t0 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < ROUNDS / TURNS / 20; i++)
      work_between_calls((uint64_t)i + 1);
    int64_t t1 = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < ROUNDS / TURNS; i++) {
      work_between_calls((uint64_t)i + 1);
      make_call(i);
    }
    alone += t1 - t0;
    both += clock_ns(CLOCK_THREAD_CPUTIME_ID) - t1;
  }
  *(double *)arg = 100.0 * 20.0 * (double)alone / (double)both;
  return NULL;
}

int main(int argc, char **argv) {
  CHECK((null = open("/dev/null", O_WRONLY)) >= 0);
  pthread_t t[2];
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&t[i], NULL, body, &share[i]), 0);
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  if (argc > 1 && !strcmp(argv[1], "truth"))
    fprintf(stderr, "%.1f\n", (share[0] + share[1]) / 2);
  puts("callheavy ok");
  return 0;
}
