//go:build ignore

/* flight.c: what samples at the beginning of a run count for, sampler/flight.h: runs of known length are met by signals that are sent at
 * random moments of them and take a while. Usage: flight ROUNDS. Exits 0 when all held. */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sampler/flight.h"

#define CHECK(c)                                                          \
  do {                                                                    \
    if (!(c)) {                                                           \
      fprintf(stderr, "flight.c:%d: %s does not hold\n", __LINE__, #c); \
      _exit(1);                                                           \
    }                                                                     \
  } while (0)

enum { RUN_NS = 400000, FIRST_NS = 60000, OTHER_OF_8 = 6 };

static uint64_t seed = 88172645463325252ull;
static uint64_t below(uint64_t n) { /* xorshift64 */
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed % n;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  long n = 100 * atol(argv[1]);
  CHECK(hb_flight_worth(10000, 9000, 1) == 0); /* nothing is known yet */
  double first = 0, all = 0, plain = 0, number = 0;
  for (long i = 0; i < n; i++) {
    uint64_t sent = below(RUN_NS), took = 10000 + below(30000);
    int on_its_way = below(8) < OTHER_OF_8;
    /* Where the thread is met; who does not run stays where it was, and the clock goes on. */
    uint64_t met = on_its_way ? sent + took : sent;
    if (met >= RUN_NS) continue; /* taken at the entry of the next call */
    uint32_t worth = hb_flight_worth(sent + took, took, on_its_way);
    CHECK(worth == 0 || (worth > HB_WORTH_ONE && worth <= HB_WORTH_MOST * HB_WORTH_ONE));
    CHECK(worth == 0 || met < HB_REACHED_NS);
    double w = worth ? worth / (double)HB_WORTH_ONE : 1;
    all += w, number += 1;
    if (met < FIRST_NS) first += w, plain += 1;
  }
  double truth = (double)FIRST_NS / RUN_NS, chance = 4 * sqrt(truth * (1 - truth) / number) * 1.5;
  printf("the first %d us of runs of %d: %.2f %% of what samples count for, %.2f %% of their number, %.2f %% true\n", FIRST_NS / 1000, RUN_NS / 1000,
         100 * first / all, 100 * plain / number, 100 * truth);
  CHECK(fabs(first / all - truth) < chance + 0.002);
  CHECK(plain / number < truth - 0.02); /* or there is nothing to be put right */
  return 0;
}
