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
  void *pthread_key_create, *pthread_setspecific, *pthread_getspecific;
  void *_setjmp;
  void *iterate; /* dl_iterate_phdr */
};
static struct hb_real hb_real;

enum hb_hook_id {
  HB_HOOK_GIL = 330, HB_HOOK_GIL_DROP, HB_HOOK_GIL_ASKED, /* as in hooks/table.h */
#define HB_HOOK(id, symbol, class, object, parks, version) HB_HOOK_##symbol = id,
#include "hooks/table.h"
};

extern int dl_iterate_phdr(int (*)(struct dl_phdr_info *, size_t, void *), void *) __attribute__((weak));
extern struct r_debug _r_debug __attribute__((weak));
typedef int (*hb_iterate_fn)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

enum {
#define HB_HOOK(id, symbol, class, object, parks, version) HB_WANTED_##symbol,
#include "hooks/table.h"
  HB_WANTED_HOOKS
};

static const struct hb_wanted hb_wanted[] = {
#define HB_HOOK(id, symbol, class, object, parks, version) {#symbol, version, &hb_real.symbol},
#include "hooks/table.h"
#define HB_WANTED(symbol) {#symbol, "", &hb_real.symbol},
    HB_WANTED(pthread_rwlock_tryrdlock) HB_WANTED(pthread_rwlock_trywrlock) HB_WANTED(pthread_spin_trylock)
    HB_WANTED(mtx_trylock) HB_WANTED(pthread_attr_getstacksize) HB_WANTED(gnu_get_libc_version) HB_WANTED(pthread_self)
    HB_WANTED(_setjmp) HB_WANTED(pthread_key_create) HB_WANTED(pthread_setspecific)
    HB_WANTED(pthread_getspecific)
    {"__errno_location", "", &hb_real.errno_location},
};
static const struct hb_wanted hb_wanted_iterate = {"dl_iterate_phdr", "", &hb_real.iterate};

/* Walk over all objects in search order. hook path */
static void hb_search_all(struct hb_search *s) {
  s->seen_self = HB_LEAVES; /* the loader does not know an agent that it has not loaded: then all are behind it */
  if (&_r_debug && _r_debug.r_map)
    for (const struct link_map *l = _r_debug.r_map; l; l = l->l_next)
      hb_search_object(s, l->l_addr, (const Elf64_Dyn *)l->l_ld);
  else if (dl_iterate_phdr)
    dl_iterate_phdr(hb_search_visit, s);
}

/* The first definition behind us of each. A wanted version that nobody has falls back to the default one, so that other
 * architectures and musl (no versions) resolve too. hook path */
static void hb_search_wanted(const struct hb_wanted *wanted, int n) {
  for (int any = 0; any < 2; any++) {
    struct hb_search s = {wanted, n, any, 0, 0};
    hb_search_all(&s);
  }
}

#ifdef HB_ATTACHED
static void hb_resolve_all(void) {} /* the attacher did, before any hook was called */
#else
/* init only (may be the first hook call of the process, before our constructor) */
static HB_NOINLINE void hb_resolve_all(void) {
  static _Atomic uint32_t busy;
  uint32_t none = 0;
  if (hb_load_acquire(&hb.resolved)) return;
  if (!hb_cas_seq(&busy, &none, 1)) { /* another thread is at it; it takes microseconds and cannot fail */
    while (!hb_load_acquire(&hb.resolved)) hb_compiler_barrier();
    return;
  }
  hb.self_lo = (uintptr_t)__ehdr_start;
  hb.self_hi = (uintptr_t)_end;
  hb_search_wanted(hb_wanted, (int)(sizeof hb_wanted / sizeof *hb_wanted));
  struct hb_search last = {&hb_wanted_iterate, 1, 0, 1, 0}; /* libc's own, not a sanitizer's */
  hb_search_all(&last);
  hb.is_glibc = hb_real.gnu_get_libc_version != NULL;
  hb_store_release(&hb.resolved, (uint64_t)1);
}
#endif

/* A function that nobody had when the program started: its library may have been loaded since (libpthread and librt
 * before glibc 2.34, libaio). The loader's list is only read, while the loader says that it is in order. A miss is looked
 * for again, but not often: programs probe for what they do not have. hook path */
static HB_NOINLINE void *hb_resolve_late(const struct hb_wanted *w) {
  static _Atomic uint32_t busy;
  uint32_t none = 0;
  hb_resolve_all();
  if (*w->found || !&_r_debug || _r_debug.r_state != RT_CONSISTENT || !hb_cas_seq(&busy, &none, 1)) return *w->found;
  hb_search_wanted(w, 1);
  hb_store_release(&busy, 0u);
  return *w->found;
}

/* Set errno the way the missing function would have. hook path */
static long hb_fail(int error) {
  if (hb_real.errno_location) *((int *(*)(void))hb_real.errno_location)() = error;
  HB_COUNT(hooks_unresolved);
  return -1;
}

/* The typed function behind wrapper `symbol`; NULL when the system has none. */
#define HB_REAL(type, symbol) \
  ((type)(HB_LIKELY(hb_real.symbol != NULL) ? hb_real.symbol : hb_resolve_late(&hb_wanted[HB_WANTED_##symbol])))

#endif
