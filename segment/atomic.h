/* atomic.h: atomics with their order in the name, for all code that runs inside a target. */
#ifndef HB_ATOMIC_H
#define HB_ATOMIC_H

#include <stdatomic.h>

#define HB_LIKELY(x) __builtin_expect(!!(x), 1)
#define HB_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HB_INLINE static inline __attribute__((always_inline))

#define hb_load_relaxed(p) atomic_load_explicit((p), memory_order_relaxed)
#define hb_load_acquire(p) atomic_load_explicit((p), memory_order_acquire)
#define hb_store_relaxed(p, v) atomic_store_explicit((p), (v), memory_order_relaxed)
#define hb_store_release(p, v) atomic_store_explicit((p), (v), memory_order_release)
#define hb_add_relaxed(p, v) atomic_fetch_add_explicit((p), (v), memory_order_relaxed)
#define hb_sub_relaxed(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_relaxed)
#define hb_sub_release(p, v) atomic_fetch_sub_explicit((p), (v), memory_order_release)
#define hb_cas_seq(p, expected, v) \
  atomic_compare_exchange_strong_explicit((p), (expected), (v), memory_order_seq_cst, memory_order_relaxed)

#endif
