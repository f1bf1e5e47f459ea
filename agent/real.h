/* real.h: the functions behind our wrappers, resolved once, without allocation, before anything can call them.
 *
 * A wrapper may run before the constructor (programs were seen to allocate hundreds of times before it), so
 * each reaches its function through HB_REAL, which resolves on first need. Racing resolvers write the same
 * values. */
#ifndef HB_REAL_H
#define HB_REAL_H

#include "agent/state.h"

/* One pointer per line of the hook table, and a few more that are called but not wrapped. */
struct hb_real {
#define HB_HOOK(id, symbol, class, object, parks, version) void *symbol;
#include "hooks/table.h"
  void *pthread_rwlock_tryrdlock, *pthread_rwlock_trywrlock, *pthread_spin_trylock, *mtx_trylock;
  void *pthread_attr_getstacksize;
  void *gnu_get_libc_version;
  void *errno_location;
  void *pthread_self;
  void *iterate; /* dl_iterate_phdr */
};
static struct hb_real hb_real;

enum hb_hook_id {
#define HB_HOOK(id, symbol, class, object, parks, version) HB_HOOK_##symbol = id,
#include "hooks/table.h"
};

extern int dl_iterate_phdr(int (*)(struct dl_phdr_info *, size_t, void *), void *) __attribute__((weak));
extern struct r_debug _r_debug __attribute__((weak));
typedef int (*hb_iterate_fn)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

static struct hb_objects hb_objects_found;

/* First definition behind us; a wanted version that nobody has falls back to the default one, so that other
 * architectures and musl (no versions) resolve too. init only */
static void *hb_resolve(const char *name, const char *version) {
  struct hb_objects *all = &hb_objects_found;
  void *p = NULL;
  if (version && *version)
    for (int i = 0; i < all->n && !p; i++) p = hb_object_find(&all->o[i], name, version);
  for (int i = 0; i < all->n && !p; i++) p = hb_object_find(&all->o[i], name, NULL);
  return p;
}

/* init only (may be the first hook call of the process, before our constructor) */
static HB_NOINLINE void hb_resolve_all(void) {
  static _Atomic uint32_t busy;
  uint32_t none = 0;
  if (hb_load_acquire(&hb.resolved)) return;
  if (!hb_cas_seq(&busy, &none, 1)) { /* another thread is at it; it takes microseconds and cannot fail */
    while (!hb_load_acquire(&hb.resolved)) hb_compiler_barrier();
    return;
  }
  if (&_r_debug && _r_debug.r_map)
    for (const struct link_map *l = _r_debug.r_map; l; l = l->l_next)
      hb_objects_add(&hb_objects_found, l->l_addr, (const Elf64_Dyn *)l->l_ld);
  else if (dl_iterate_phdr)
    dl_iterate_phdr(hb_objects_visit, &hb_objects_found);
  hb.self_lo = (uintptr_t)__ehdr_start;
  hb.self_hi = (uintptr_t)_end;
#define HB_HOOK(id, symbol, class, object, parks, version) hb_real.symbol = hb_resolve(#symbol, version);
#include "hooks/table.h"
  hb_real.pthread_rwlock_tryrdlock = hb_resolve("pthread_rwlock_tryrdlock", NULL);
  hb_real.pthread_rwlock_trywrlock = hb_resolve("pthread_rwlock_trywrlock", NULL);
  hb_real.pthread_spin_trylock = hb_resolve("pthread_spin_trylock", NULL);
  hb_real.mtx_trylock = hb_resolve("mtx_trylock", NULL);
  hb_real.pthread_attr_getstacksize = hb_resolve("pthread_attr_getstacksize", NULL);
  hb_real.gnu_get_libc_version = hb_resolve("gnu_get_libc_version", NULL);
  hb_real.pthread_self = hb_resolve("pthread_self", NULL);
  hb_real.errno_location = hb_resolve("__errno_location", NULL);
  for (int i = hb_objects_found.n - 1; i >= 0 && !hb_real.iterate; i--) /* the last one is libc's own, not a sanitizer's */
    hb_real.iterate = hb_object_find(&hb_objects_found.o[i], "dl_iterate_phdr", NULL);
  hb.is_glibc = hb_real.gnu_get_libc_version != NULL;
  hb_store_release(&hb.resolved, (uint64_t)1);
}

/* A function that nobody had when the program started: its library may have been loaded since (libpthread and librt
 * before glibc 2.34, libaio). The loader's list is only read, while the loader says that it is in order. A miss is looked
 * for again, but not often: programs probe for what they do not have. hook path */
static HB_NOINLINE void *hb_resolve_late(void **slot, const char *name, const char *version) {
  static _Atomic uint32_t busy;
  static struct hb_objects now;
  uint32_t none = 0;
  hb_resolve_all();
  if (*slot || !&_r_debug || _r_debug.r_state != RT_CONSISTENT || !hb_cas_seq(&busy, &none, 1)) return *slot;
  now.n = now.seen_self = 0;
  for (const struct link_map *l = _r_debug.r_map; l; l = l->l_next)
    hb_objects_add(&now, l->l_addr, (const Elf64_Dyn *)l->l_ld);
  void *p = NULL;
  for (int i = 0; i < now.n && !p && *version; i++) p = hb_object_find(&now.o[i], name, version);
  for (int i = 0; i < now.n && !p; i++) p = hb_object_find(&now.o[i], name, NULL);
  if (p) __atomic_store_n(slot, p, __ATOMIC_RELEASE);
  hb_store_release(&busy, 0u);
  return p;
}

enum {
#define HB_HOOK(id, symbol, class, object, parks, version) HB_VERSION_LINE_##symbol,
#include "hooks/table.h"
};
static const char *const hb_versions[] = {
#define HB_HOOK(id, symbol, class, object, parks, version) version,
#include "hooks/table.h"
};

/* Set errno the way the missing function would have. hook path */
static long hb_fail(int error) {
  if (hb_real.errno_location) *((int *(*)(void))hb_real.errno_location)() = error;
  HB_COUNT(hooks_unresolved);
  return -1;
}

/* The typed function behind wrapper `symbol`; NULL when the system has none. */
#define HB_REAL(type, symbol)                        \
  ((type)(HB_LIKELY(hb_real.symbol != NULL)          \
              ? hb_real.symbol                       \
              : hb_resolve_late(&hb_real.symbol, #symbol, hb_versions[HB_VERSION_LINE_##symbol])))

#endif
