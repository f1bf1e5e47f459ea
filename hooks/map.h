/* map.h: big anonymous mappings: the heaps of runtimes and of allocators that are linked in. They are sampled and
 * remembered like allocations. Those of the allocator behind malloc are not counted a second time: they are told by
 * their caller's address. Address space that is only reserved (PROT_NONE, MAP_NORESERVE) is none. */
#ifndef HB_MAP_H
#define HB_MAP_H

#include "hooks/alloc.h"

#define HB_MAP_BIG (128u << 10) /* glibc's own threshold for giving an allocation a mapping (M_MMAP_THRESHOLD) */

/* By the allocator itself? frame: the wrapper's. hook path */
static int hb_map_of_allocator(const void *frame) {
  uintptr_t pc = ((const uintptr_t *)frame)[1];
  return pc - hb.malloc_lo < hb.malloc_hi - hb.malloc_lo;
}

static void hb_mapped(uint32_t hook, void *p, size_t n, const void *frame) {
  struct hb_tls *t = hb_self();
  uint64_t objects = t->alloc_objects; /* counts what free can give back: not every munmap is of one of these */
  if (!hb_alloc_gate(t, n, (const void *)hb_frame_cfa(frame))) hb_allocated(t, hook, p, n, frame);
  t->alloc_objects = objects;
}

static void hb_unmapped(void *p) {
  if (hb_maybe_sampled(p) && hb_alloc_untrack((uint64_t)p)) hb_emit_free(hb_self(), (uint64_t)p);
}

#define HB_MMAP(symbol)                                                                                         \
  HB_EXPORT HB_NOINLINE void *symbol(void *at, size_t n, int prot, int flags, int fd, int64_t off) {            \
    typedef void *(*fn)(void *, size_t, int, int, int, int64_t);                                                \
    fn real = HB_REAL(fn, symbol);                                                                              \
    if (HB_UNLIKELY(!real)) return (void *)hb_fail(HB_ENOSYS);                                                  \
    void *p = real(at, n, prot, flags, fd, off);                                                                \
    if (n >= HB_MAP_BIG && (flags & (HB_MAP_ANON | HB_MAP_NORESERVE)) == HB_MAP_ANON && prot && p != (void *)-1 && !hb_map_of_allocator(HB_FRAME))  \
      hb_mapped(HB_HOOK_##symbol, p, n, HB_FRAME);                                                              \
    return p;                                                                                                   \
  }
HB_MMAP(mmap)
HB_MMAP(mmap64)

HB_EXPORT HB_NOINLINE int munmap(void *p, size_t n) {
  typedef int (*fn)(void *, size_t);
  fn real = HB_REAL(fn, munmap);
  if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);
  if (n >= HB_MAP_BIG && !hb_map_of_allocator(HB_FRAME)) hb_unmapped(p); /* before another thread can get the address */
  return real(p, n);
}

HB_EXPORT HB_NOINLINE void *mremap(void *old, size_t was, size_t n, int flags, void *at) {
  typedef void *(*fn)(void *, size_t, size_t, int, void *);
  fn real = HB_REAL(fn, mremap);
  if (HB_UNLIKELY(!real)) return (void *)hb_fail(HB_ENOSYS);
  int counts = was && (was >= HB_MAP_BIG || n >= HB_MAP_BIG) && !hb_map_of_allocator(HB_FRAME);
  int tracked = counts && hb_maybe_sampled(old) && hb_alloc_untrack((uint64_t)old);
  int said = tracked && flags & 1 /* MREMAP_MAYMOVE */; /* before another thread can get the address */
  if (said) hb_emit_free(hb_self(), (uint64_t)old);
  void *p = real(old, was, n, flags, at);
  if (!counts) return p;
  if (p == (void *)-1) {
    if (said) HB_COUNT(alloc_table_full); /* it lives on unseen */
    else if (tracked) hb_alloc_track((uint64_t)old);
    return p;
  }
  if (tracked && !said) hb_emit_free(hb_self(), (uint64_t)old);
  if (n >= HB_MAP_BIG) hb_mapped(HB_HOOK_mremap, p, n, HB_FRAME);
  return p;
}

#endif
