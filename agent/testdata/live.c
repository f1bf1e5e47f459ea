//go:build ignore

/* live.c: the table of sampled live addresses and its filter (hooks/live.h), from several threads, under AddressSanitizer,
 * UndefinedBehaviorSanitizer and ThreadSanitizer. Usage: live ROUNDS. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hooks/live.h"

#define CHECK(c)                                                              \
  do {                                                                        \
    if (!(c)) {                                                               \
      fprintf(stderr, "live.c:%d: %s does not hold\n", __LINE__, #c);        \
      _exit(1);                                                               \
    }                                                                         \
  } while (0)

enum { THREADS = 4, SLOTS = 1 << 9, EACH = 100 };

static long rounds;
static struct hb_wiped wiped;
static struct hb_proc process;
static _Atomic uint64_t table[SLOTS];
static _Atomic long full, orphans, flushed;

static uint64_t next(uint64_t *x) {
  *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
  return *x;
}

/* What nobody else allocates, in the shapes that allocators give: close together, page by page, anywhere. */
static uint64_t address(uint64_t *x, uint64_t thread, uint64_t i) {
  uint64_t step = next(x) % 3 == 0 ? 16 : next(x) % 2 ? 4096 : 1 << 20;
  return 0x7f0000000010 + ((thread * EACH + i) << 32) + next(x) % 4096 * step;
}

static void *worker(void *arg) {
  uint64_t live[EACH] = {0}, x = 88172645463325252ull * (uint64_t)(1 + (intptr_t)arg);
  for (long r = 0; r < rounds; r++) {
    uint64_t i = next(&x) % EACH;
    if (!live[i]) {
      uint64_t a = address(&x, (uint64_t)(intptr_t)arg, i);
      if (hb_alloc_track(a)) {
        CHECK(hb_maybe_sampled((void *)a));
        live[i] = a;
      } else
        full++;
    } else {
      CHECK(hb_maybe_sampled((void *)live[i])); /* or its free would go by unseen */
      CHECK(hb_alloc_untrack(live[i]));
      CHECK(!hb_alloc_untrack(live[i]));
      if (next(&x) % 8 == 0) {
        hb_orphan_free(live[i]);
        orphans++;
      }
      live[i] = 0;
    }
    if (next(&x) % 2048 == 0 && hb_load_relaxed(&wiped.orphan_frees)) /* as hb_put_orphans takes them */
      for (uint32_t k = 0; k < HB_ORPHAN_FREES; k++) {
        uint64_t a = hb_orphan_take(k);
        if (!a) continue;
        CHECK(hb_orphan_due(a));
        hb_orphan_done(k);
        flushed++;
      }
  }
  for (int i = 0; i < EACH; i++)
    if (live[i]) CHECK(hb_alloc_untrack(live[i]));
  return NULL;
}

/* Several threads fill one byte of the filter, to the brim and over it, and empty the table again. */
static void *brim(void *arg) {
  for (long r = 0; r < rounds / 25; r++) {
    for (int i = 0; i < 200; i++) hb_filter_count(0x1000, 1);
    for (int i = 0; i < 200; i++) hb_filter_count(0x1000, -1);
  }
  return arg;
}

static void together(void *(*f)(void *)) {
  pthread_t t[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, f, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(t[i], NULL) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  rounds = atol(argv[1]) * 25;
  hb.wiped = &wiped;
  hb.slot = &process;
  hb.alloc_table = table;
  hb.alloc_mask = SLOTS - 1;
  together(worker);
  for (int i = 0; i < SLOTS; i++) CHECK(hb_load_relaxed(&table[i]) == 0);
  for (int i = 0; i < HB_FREE_FILTER; i++) CHECK(hb_load_relaxed(&wiped.free_filter[i]) == 0); /* 400 live at most: none was full */
  long waiting = hb_load_relaxed(&wiped.orphan_frees), no_room = (long)hb_load_relaxed(&process.alloc_table_full) - full;
  CHECK(orphans == flushed + waiting + no_room && waiting <= HB_ORPHAN_FREES);
  together(brim);
  int left = hb_load_relaxed(hb_filter(0x1000));
  CHECK(left == 0 || left == 255); /* all taken back, or full for good; never wrapped */
  CHECK(!hb_alloc_untrack(0));
  printf("%ld rounds, %ld without room, %ld orphans, %ld without room\n", rounds * THREADS, full, orphans, no_room);
  return 0;
}
