/* ground.h: the configuration, the clock, and loads from the runtime's memory. */
#ifndef HB_GO_GROUND_H
#define HB_GO_GROUND_H

#include <stdint.h>

#include "segment/atomic.h"
#include "segment/layout.h"

#define HB_HOOK_GO
#define HB_HOOK(id, symbol, class, object, parks, version) HB_HOOK_##symbol = id,
enum {
#include "hooks/table.h"
};

typedef uint64_t u64;
typedef uint32_t u32;

/* The image's first bytes. volatile: the compiler must not know what is in it. */
__attribute__((section(".config"), used, visibility("hidden"))) const volatile struct hb_go_config hb_go = {.entries = 1};

#define HB_LD(p, off) (*(const volatile u64 *)((p) + (off)))

static inline struct hb_header *hb_header(void) { return (struct hb_header *)hb_go.segment; }
static inline struct hb_go_table *hb_table(void) { return (struct hb_go_table *)hb_go.table; }

struct hb_go_timespec {
  int64_t sec, nsec;
};

static inline long hb_go_sys2(long n, long a, long b) {
  long r;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b) : "rcx", "r11", "memory");
  return r;
}

/* CLOCK_MONOTONIC in ns. signal-safe */
static u64 hb_go_now(void) {
  struct hb_go_timespec ts = {0, 0};
  enum { MONOTONIC = 1, SYS_clock_gettime = 228 };
  if (HB_LIKELY(hb_go.clock != 0))
    ((int (*)(int, struct hb_go_timespec *))hb_go.clock)(MONOTONIC, &ts);
  else
    hb_go_sys2(SYS_clock_gettime, MONOTONIC, (long)&ts);
  return (u64)ts.sec * 1000000000u + (u64)ts.nsec;
}

/* Whether the session records and its recorder is alive. A recorder that was killed is silent for good, and one that
 * is stopped for a while: what begins before it is heard again is not known (hb_go_table.heard_ns). signal-safe */
static inline int hb_heard(u64 now) {
  struct hb_header *h = hb_header();
  struct hb_go_table *t = hb_table();
  u64 beat = hb_load_relaxed(&h->heartbeat_ns);
  if (HB_UNLIKELY(now > beat && now - beat > HB_SILENCE_NS)) {
    if (!hb_load_relaxed(&t->silent)) hb_store_relaxed(&t->silent, 1u);
    return 0;
  }
  if (HB_UNLIKELY(hb_load_relaxed(&t->silent) != 0)) {
    hb_store_relaxed(&t->heard_ns, now);
    hb_store_relaxed(&t->silent, 0u);
  }
  return 1;
}

#endif
