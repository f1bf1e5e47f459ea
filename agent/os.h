/* os.h: the agent's floor: atomics with their order in the name, memory, system calls, clocks.
 *
 * The agent is a guest. Nothing here or above calls libc except the functions that are wrapped, the loader's
 * dl_iterate_phdr at start and at exit, and __errno_location in fall-backs. Raw system calls leave errno alone.
 *
 * Tags: "signal-safe" may run in a signal handler; "hook path" on a thread inside one of our wrappers;
 * "init only" in the constructor, the destructor or a fork child before anything else. */
#ifndef HB_OS_H
#define HB_OS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include "agent/arch_amd64.h"
#elif defined(__aarch64__)
#include "agent/arch_arm64.h"
#else
#error "no agent/arch_*.h for this architecture yet"
#endif

#define HB_EXPORT __attribute__((visibility("default"), used))
#define HB_NOINLINE __attribute__((noinline, noclone))
#define HB_GATE __attribute__((section("hb_gates"))) /* too short to be timed: agent/own.h */
#define HB_CFA __builtin_dwarf_cfa()        /* the caller's stack pointer after we return; needs no frame */

#include "segment/atomic.h"
#define hb_compiler_barrier() __asm__ volatile("" ::: "memory")

#define HB_EPERM 1

/* ---- system calls ---- */

/* Once the target is about to confine its system calls none of ours begins any more, and those that have begun are waited
 * for (hooks/confine.h): each is counted while it lasts. */
static _Atomic uint32_t hb_calls_shut, hb_calls_made;

/* May one or more be made? Then until hb_calls_end. signal-safe */
HB_INLINE int hb_calls_begin(void) {
  atomic_fetch_add_explicit(&hb_calls_made, 1u, memory_order_seq_cst);
  if (HB_LIKELY(!atomic_load_explicit(&hb_calls_shut, memory_order_seq_cst))) return 1;
  atomic_fetch_sub_explicit(&hb_calls_made, 1u, memory_order_release);
  return 0;
}
HB_INLINE void hb_calls_end(void) { atomic_fetch_sub_explicit(&hb_calls_made, 1u, memory_order_release); }

/* A system call of ours; -EPERM once none may be made. signal-safe */
static inline long hb_sys6(long n, long a, long b, long c, long d, long e, long f) {
  if (HB_UNLIKELY(!hb_calls_begin())) return -HB_EPERM;
  long r = hb_raw6(n, a, b, c, d, e, f);
  hb_calls_end();
  return r;
}
#define hb_sys1(n, a) hb_sys6((n), (long)(a), 0, 0, 0, 0, 0)
#define hb_sys2(n, a, b) hb_sys6((n), (long)(a), (long)(b), 0, 0, 0, 0)
#define hb_sys3(n, a, b, c) hb_sys6((n), (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define hb_sys4(n, a, b, c, d) hb_sys6((n), (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

#define HB_PROT_RW 3
#define HB_MAP_SHARED 1
#define HB_MAP_PRIVATE 2
#define HB_MAP_ANON 0x20
#define HB_MAP_NORESERVE 0x4000
#define HB_MADV_DONTNEED 4
#define HB_MADV_NOHUGEPAGE 15
#define HB_MADV_WIPEONFORK 18
#define HB_CLOCK_MONOTONIC 1
#define HB_CLOCK_THREAD_CPUTIME 3
#define HB_EINTR 4
#define HB_EAGAIN 11
#define HB_EBUSY 16
#define HB_EINVAL 22
#define HB_EOWNERDEAD 130
#define HB_ENOSYS 38
#define HB_ETIMEDOUT 110

/* gcc emits calls to these for structure copies; ours stay inside the object. */
__attribute__((visibility("hidden"), used)) void *memcpy(void *restrict d, const void *restrict s, size_t n) {
  char *p = d;
  const char *q = s;
  while (n--) {
    *p++ = *q++;
    hb_compiler_barrier();
  }
  return d;
}
__attribute__((visibility("hidden"), used)) void *memset(void *d, int c, size_t n) {
  char *p = d;
  while (n--) {
    *p++ = (char)c;
    hb_compiler_barrier();
  }
  return d;
}

HB_INLINE int hb_is_err(long r) { return (unsigned long)r > -4096ul; }

static inline size_t hb_strlen(const char *s) {
  size_t n = 0;
  for (; s[n]; n++) hb_compiler_barrier(); /* or gcc makes it a call to strlen */
  return n;
}

#define HB_SHORT_TEXT 128

/* Is it shorter than room, and short? No more of it is read than tells: whoever is handed a megabyte reads it anyway, and
 * much faster. hook path */
static inline int hb_short_text(const char *s, uint64_t room) {
  uint64_t n = 0, most = room < HB_SHORT_TEXT ? room : HB_SHORT_TEXT;
  while (n < most && s[n]) {
    n++;
    hb_compiler_barrier();
  }
  return n < most;
}

static inline int hb_streq(const char *a, const char *b) {
  while (*a && *a == *b) a++, b++;
  return *a == *b;
}

/* What the agent has mapped, to be given back by hb_leave. A preloaded agent stays, and keeps no account. */
#ifdef HB_ATTACHED
#define HB_LEAVES 1
#define HB_MAPPINGS 1024
static struct hb_mapping {
  _Atomic uint64_t at; /* 0: free; 1: being written */
  uint64_t bytes;
} hb_mappings[HB_MAPPINGS];

static int hb_mapping_note(uint64_t at, uint64_t bytes) {
  for (int i = 0; i < HB_MAPPINGS; i++) {
    uint64_t none = 0;
    if (hb_load_relaxed(&hb_mappings[i].at) || !hb_cas_seq(&hb_mappings[i].at, &none, (uint64_t)1)) continue;
    hb_mappings[i].bytes = bytes;
    hb_store_release(&hb_mappings[i].at, at);
    return 1;
  }
  return 0;
}

static void hb_mapping_drop(uint64_t at) {
  for (int i = 0; i < HB_MAPPINGS; i++)
    if (hb_load_relaxed(&hb_mappings[i].at) == at) hb_store_release(&hb_mappings[i].at, (uint64_t)0);
}
#else
#define HB_LEAVES 0
HB_INLINE int hb_mapping_note(uint64_t at, uint64_t bytes) { return (void)at, (void)bytes, 1; }
HB_INLINE void hb_mapping_drop(uint64_t at) { (void)at; }
#endif

HB_INLINE void hb_unmap(const void *p, size_t bytes) {
  hb_mapping_drop((uint64_t)p);
  hb_sys2(HB_SYS_munmap, p, bytes);
}

/* Zeroed private memory, NULL when there is none. hook path */
static void *hb_pages(size_t bytes) {
  long r = hb_sys6(HB_SYS_mmap, 0, (long)bytes, HB_PROT_RW, HB_MAP_PRIVATE | HB_MAP_ANON | HB_MAP_NORESERVE, -1, 0);
  if (hb_is_err(r)) return NULL;
  if (hb_mapping_note((uint64_t)r, bytes)) return (void *)r;
  hb_sys2(HB_SYS_munmap, r, bytes);
  return NULL;
}

struct hb_timespec {
  int64_t sec, nsec;
};

/* ---- clocks ---- */
static int (*hb_vdso_clock)(int, struct hb_timespec *); /* set once at attach; NULL: system call */
static uint64_t hb_cycles_mult; /* 0: hb_stamp() is nanoseconds */
static uint32_t hb_counter_off __attribute__((unused)); /* 1: reading the cycle counter kills the thread */

/* CLOCK_MONOTONIC in ns. signal-safe */
static uint64_t hb_now_ns(void) {
  struct hb_timespec ts = {0, 0};
  if (HB_LIKELY(hb_vdso_clock != NULL))
    hb_vdso_clock(HB_CLOCK_MONOTONIC, &ts);
  else
    hb_sys2(HB_SYS_clock_gettime, HB_CLOCK_MONOTONIC, &ts);
  return (uint64_t)ts.sec * 1000000000u + (uint64_t)ts.nsec;
}

/* CPU time of the calling thread in ns; a system call of some 350 ns. signal-safe */
static uint64_t hb_thread_cpu_ns(void) {
  struct hb_timespec ts = {0, 0};
  hb_sys2(HB_SYS_clock_gettime, HB_CLOCK_THREAD_CPUTIME, &ts);
  return (uint64_t)ts.sec * 1000000000u + (uint64_t)ts.nsec;
}

/* A cheap stamp for the beginning of an interval: only differences mean anything. hook path */
HB_INLINE uint64_t hb_stamp(void) {
#if HB_HAVE_CYCLES
  if (HB_LIKELY(hb_cycles_mult != 0)) return hb_cycles();
#endif
  return hb_now_ns();
}

/* Difference of two stamps in ns; a counter that ran backwards between CPUs gives 0. signal-safe */
HB_INLINE uint64_t hb_stamp_ns(uint64_t from, uint64_t to) {
  if ((int64_t)(to - from) < 0) return 0;
  if (HB_UNLIKELY(hb_cycles_mult == 0)) return to - from;
  return (uint64_t)(((unsigned __int128)(to - from) * hb_cycles_mult) >> 32);
}

#endif
