//go:build ignore

/* arrival.c: what sampler/arrival.h says of a signal, one case each, with this program as the sampler: what it knows of the thread and when it rested is
 * decided here. Usage: arrival ROUNDS. Exits 0 when all held. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sampler/arrival.h"

#define MS 1000000ull

static struct hb_header header;
static struct hb_thread slot;

/* How a signal counts that was sent `ago` ns ago to a thread which had used all but `since` ns of its CPU time by then, when the sampler went to rest `rested`
 * ns ago; a time below 0 has not come. */
static uint32_t how(int64_t ago, int64_t since, int64_t rested, int after_syscall, int *on_its_way) {
  struct hb_arrival a;
  hb_store_relaxed(&slot.asked_ns, hb_now_ns() - (uint64_t)ago);
  hb_store_relaxed(&header.rested_ns, hb_now_ns() - (uint64_t)rested);
  hb_store_relaxed(&slot.looked_cpu_ns, since == INT64_MIN ? 0 : hb_thread_cpu_ns() + 1000 * MS - (uint64_t)(since + 1000 * (int64_t)MS));
  hb_arrived(&slot, after_syscall, &a);
  *on_its_way = a.on_its_way;
  if (ago < 0 && a.flight != 0) return UINT32_MAX;
  if (ago > 0 && a.flight < (uint64_t)ago) return UINT32_MAX;
  return a.how;
}

#define CHECK(ago, since, rested, after_syscall, want, way)                                                       \
  do {                                                                                                            \
    int on_its_way;                                                                                               \
    uint32_t got = how(ago, since, rested, after_syscall, &on_its_way);                                           \
    if (got != (want) || on_its_way != (way)) {                                                                   \
      fprintf(stderr, "arrival.c:%d: flags %u, on its way %d; want %u, %d\n", __LINE__, got, on_its_way, (want), way); \
      _exit(1);                                                                                                   \
    }                                                                                                             \
  } while (0)

/* What it used since, and how long the signal took. */
static int stood_by_cpu_time(void) {
  return hb_stood(10000, 15000) && hb_stood(10000, MS) && hb_stood((uint64_t)-1000, MS) && /* by another CPU's clock */
         hb_stood(60000, MS) &&                                                         /* cold, after a long wait */
         !hb_stood(30000, 30000) && !hb_stood(60000, 75000) && !hb_stood(200000, MS);   /* it ran */
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  int64_t soon = -1000 * (int64_t)MS, ms = (int64_t)MS, stood = -1000 * ms, ran = 1000 * ms, unknown = INT64_MIN;
  hb.header = &header;
  if (!stood_by_cpu_time()) return 3;
  for (long i = atol(argv[1]); i > 0; i--) {
    /* It has used CPU time since: it was running. However long the signal took, and whoever had its CPU meanwhile. */
    CHECK(soon, ran, ms, 0, 0u, 1);
    CHECK(ms, ran, ms, 0, 0u, 0);
    CHECK(1000 * ms, ran, soon, 0, 0u, 0);
    /* But to the end of a system call it was put off. */
    CHECK(soon, ran, ms, 1, HB_RECF_AFTER_SYSCALL, 1);
    CHECK(ms, ran, ms, 1, HB_RECF_AFTER_SYSCALL | HB_RECF_STALE, 0);
    /* It has used none, and went on as soon as it was asked, or as the sampler rested: that had taken its CPU. */
    CHECK(soon, stood, 1000 * ms, 0, HB_RECF_SAME_CPU, 0);
    CHECK(ms, stood, soon, 0, HB_RECF_SAME_CPU, 0);
    CHECK(ms, stood, soon, 1, HB_RECF_SAME_CPU | HB_RECF_AFTER_SYSCALL, 0);
    /* Only later: others had it. */
    CHECK(ms, stood, ms, 0, HB_RECF_STALE, 0);
    CHECK(ms, stood, ms, 1, HB_RECF_STALE | HB_RECF_AFTER_SYSCALL, 0);
    /* The kernel does not say: by how long the signal took, and by the CPU. */
    hb_store_relaxed(&slot.asked_cpu, 0u);
    CHECK(soon, unknown, ms, 0, 0u, 1);
    CHECK(ms, unknown, soon, 0, HB_RECF_STALE, 0);
    CHECK(ms, unknown, soon, 1, HB_RECF_STALE | HB_RECF_AFTER_SYSCALL, 0);
  }
  return 0;
}
