/* life.h: the beginning and the end of threads and processes, their names, and loading of objects. */
#ifndef HB_LIFE_H
#define HB_LIFE_H

#include "hooks/c11.h"
#include "hooks/call.h"
#include "hooks/jump.h"
#include "hooks/map.h"
#include "hooks/stdio.h"
#include "sampler/altstack.h"
#include "sampler/mask.h"

/* ---- threads ---- */

struct hb_start {
  _Atomic uint32_t used;
  void *(*routine)(void *);
  void *arg;
  struct hb_birth birth;
};
#define HB_STARTS 1024 /* threads between pthread_create and their first instruction */
static struct hb_start hb_starts[HB_STARTS];

static struct hb_start *hb_start_take(void) {
  static _Atomic uint32_t next;
  uint32_t from = hb_add_relaxed(&next, 1u);
  for (uint32_t i = 0; i < HB_STARTS; i++) {
    struct hb_start *s = &hb_starts[(from + i) % HB_STARTS];
    uint32_t free_ = 0;
    if (!hb_load_relaxed(&s->used) && hb_cas_seq(&s->used, &free_, 1u)) return s;
  }
  return NULL;
}

static void hb_thread_goodbye(void) {
  struct hb_tls *t = hb_self();
  if (!t->slot) return;
  hb_join_release(t);
  hb_thread_leave(t, 0);
}

/* A thread's end. The C library runs destructors when its routine has returned: first those of thread_local objects, then those
 * of keys, in rounds as long as some thread-specific value is set, HB_KEY_ROUNDS at most. They free memory and take time, so the
 * goodbye comes in the last round: a key of ours sets its value again until then. */
#define HB_KEY_ROUNDS 4 /* PTHREAD_DESTRUCTOR_ITERATIONS of glibc and musl */
#define HB_KEYS_INLINE 32 /* glibc allocates for the values of later keys */
static uint32_t hb_end_key; /* + 1; 0: none, the goodbye comes when the routine returns */

static int hb_end_at(uintptr_t round) {
  typedef int (*fn)(uint32_t, const void *);
  return hb_end_key && ((fn)hb_real.pthread_setspecific)(hb_end_key - 1, (const void *)round) == 0;
}

static void hb_end_round(void *value) {
  uintptr_t round = (uintptr_t)value;
  if (!hb_self()->slot || (round < HB_KEY_ROUNDS && hb_end_at(round + 1))) return;
  hb_thread_goodbye();
}

/* An attached agent has none: it leaves before the threads, and the C library would call what is gone. init only */
static __attribute__((unused)) void hb_end_prepare(void) {
  typedef int (*fn)(uint32_t *, void (*)(void *));
  uint32_t key;
  if (!hb_load_relaxed(&hb.on) || !hb_real.pthread_key_create || !hb_real.pthread_setspecific) return;
  if (((fn)hb_real.pthread_key_create)(&key, hb_end_round)) return;
  if (!hb.is_glibc || key < HB_KEYS_INLINE) hb_end_key = key + 1;
}

static void hb_thread_over(void) {
  if (hb_self()->slot && !hb_end_at(1)) hb_thread_goodbye();
}

extern const char __start_hb_thread_text[] __attribute__((visibility("hidden")));
extern const char __stop_hb_thread_text[] __attribute__((visibility("hidden")));

/* pthread_exit and cancellation unwind through the thread's first frame. */
__attribute__((used, visibility("hidden"))) int hb_thread_personality(int version, int actions, uint64_t cls,
                                                                        void *exception, void *context) {
  (void)version, (void)cls, (void)exception, (void)context;
  if (actions & 2) hb_thread_over();
  return 8;
}

/* What a new thread is to run. */
struct hb_go {
  void *(*routine)(void *);
  void *arg;
};

static struct hb_go hb_thread_begin(struct hb_start *s) {
  struct hb_go go = {s->routine, s->arg};
  struct hb_birth birth = s->birth;
  hb_store_release(&s->used, 0u);
  struct hb_tls *t = hb_self();
  if (hb_load_relaxed(&hb.on) && hb_load_relaxed(&hb.wiped->alive) && hb_thread_join_session(t, &birth)) {
    if (hb_begin(t)) {
      hb_announce(t);
      hb_end(t, 0, HB_FRAME);
    }
    if (hb_point_near(t, hb_stamp())) hb_sample_inside(t, 0, HB_FRAME); /* its birth: no part of the work that follows */
    hb_lend_at_birth(t, (int)birth.lent);
    hb_store_release(&t->slot->state, t->rest); /* it joined as one that nobody signals */
  } else {
    hb_lend_at_birth(t, (int)birth.lent);
  }
  return go;
}

#ifndef HB_ATTACHED
/* In a section of its own, so that a walk knows its extent: above it lies nothing of the program. */
static HB_NOINLINE __attribute__((section("hb_thread_text"))) void *hb_thread_main(void *p) {
  __asm__ volatile(".cfi_personality 0x1b, hb_thread_personality");
  struct hb_go go = hb_thread_begin(p);
  void *r = go.routine(go.arg);
  hb_thread_over();
  return r;
}
#define HB_THREAD_MAIN hb_thread_main
#else
/* An attached agent leaves before the threads that began while it was there: their first function lies with the thunks, which stay, and
 * calls these two. */
__attribute__((used, noinline)) static struct hb_go hb_thread_begins(struct hb_start *s) { return hb_thread_begin(s); }
__attribute__((used, noinline)) static void hb_thread_ends(void) { hb_thread_goodbye(); }
#define HB_THREAD_MAIN ((void *(*)(void *))hb_join.thread_start)
#endif

HB_EXPORT HB_NOINLINE int pthread_create(void *th, const void *attr, void *(*routine)(void *), void *arg) {
  typedef int (*fn)(void *, const void *, void *(*)(void *), void *);
  fn real = HB_REAL(fn, pthread_create);
  struct hb_tls *t = hb_self();
  if (!real) return HB_EAGAIN;
  if (!hb_thread_ready(t)) return real(th, attr, routine, arg);
  struct hb_start *s = hb_start_take();
  if (!s) return real(th, attr, routine, arg); /* met at its first hook instead */
  uint64_t bytes = hb.default_stack;
  typedef int (*getsize)(const void *, size_t *);
  size_t asked = 0;
  if (attr && hb_real.pthread_attr_getstacksize && !((getsize)hb_real.pthread_attr_getstacksize)(attr, &asked))
    bytes = asked;
  s->routine = routine;
  s->arg = arg;
  s->birth = (struct hb_birth){(uint64_t)routine, t->uid, bytes, t->flags & HB_TLS_LENT};
  int r = real(th, attr, HB_THREAD_MAIN, s);
  if (r) hb_store_release(&s->used, 0u);
  return r;
}

HB_EXPORT HB_NOINLINE int thrd_create(void *th, int (*routine)(void *), void *arg) {
  typedef int (*fn)(void *, int (*)(void *), void *);
  fn real = HB_REAL(fn, thrd_create);
  struct hb_tls *t = hb_self();
  if (!real) return 2; /* thrd_error */
  struct hb_start *s = hb_thread_ready(t) ? hb_start_take() : NULL;
  if (!s) return real(th, routine, arg);
  s->routine = (void *(*)(void *))(void *)routine; /* its int comes back in the low half of the register */
  s->arg = arg;
  s->birth = (struct hb_birth){(uint64_t)routine, t->uid, hb.default_stack, t->flags & HB_TLS_LENT};
  int r = real(th, (int (*)(void *))(void *)HB_THREAD_MAIN, s);
  if (r) hb_store_release(&s->used, 0u);
  return r;
}

/* musl ends a thread without unwinding it, and unwinding does not reach what an attached agent has in its place. */
#ifdef HB_ATTACHED
#define HB_UNWINDS_ON_EXIT 0
#else
#define HB_UNWINDS_ON_EXIT hb.is_glibc
#endif
HB_EXPORT void pthread_exit(void *value) {
  typedef void (*fn)(void *);
  fn real = HB_REAL(fn, pthread_exit);
  if (!HB_UNWINDS_ON_EXIT) hb_thread_over();
  real(value);
  __builtin_unreachable();
}

HB_EXPORT void thrd_exit(int value) {
  typedef void (*fn)(int);
  fn real = HB_REAL(fn, thrd_exit);
  if (!HB_UNWINDS_ON_EXIT) hb_thread_over();
  real(value);
  __builtin_unreachable();
}

/* ---- names ---- */

static void hb_renamed(struct hb_tls *t, uint32_t of, const char *name) {
  struct hb_rec_name r;
  if (!hb_begin(t)) return;
  if (!t->announced) hb_announce(t);
  hb_rec_init(&r.rec, HB_REC_NAME, 0, 0, hb_now_ns());
  r.of = of;
  r.reserved = 0;
  uint32_t n = 0;
  for (; n < HB_NAME_BYTES - 1 && name[n]; n++) r.name[n] = (uint8_t)name[n];
  for (; n < HB_NAME_BYTES; n++) r.name[n] = 0;
  hb_put(t, &r.rec, sizeof r, NULL, 0);
  hb_end(t, 0, HB_FRAME);
}

/* The recorded thread of this process with that pthread_t; 0 when it has not joined yet (it will read its name
 * then). hook path */
static uint32_t hb_uid_of(uint64_t th) {
  uint32_t high = hb_load_relaxed(&hb.header->threads_high);
  for (uint32_t i = 0; i < high && i < hb.threads_cap; i++) {
    uint32_t uid = hb_load_acquire(&hb.threads[i].uid);
    if (uid && uid != HB_UID_CLAIMING && hb.threads[i].proc_uid == hb.uid && hb.threads[i].thread_pointer == th) return uid;
  }
  return 0;
}

HB_EXPORT int pthread_setname_np(uint64_t th, const char *name) {
  typedef int (*fn)(uint64_t, const char *);
  fn real = HB_REAL(fn, pthread_setname_np);
  if (!real) return HB_ENOSYS;
  int r = real(th, name);
  if (r == 0 && hb_thread_ready(hb_self())) {
    uint32_t of = hb_uid_of(th);
    if (of) hb_renamed(hb_self(), of, name);
  }
  return r;
}

HB_EXPORT int prctl(int op, long a, long b, long c, long d) {
  typedef int (*fn)(int, long, long, long, long);
  fn real = HB_REAL(fn, prctl);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  hb_before_prctl(op, a);
  int r = real(op, a, b, c, d);
  if (op == 15 /* PR_SET_NAME */ && r == 0 && hb_thread_ready(hb_self())) hb_renamed(hb_self(), 0, (const char *)a);
  return r;
}

/* ---- processes ---- */

/* In a fork child. A system that took MADV_WIPEONFORK and did not do it (qemu-user before 8) has left what is its parent's: it is
 * wiped here, later than handlers of fork may have called us. init only */
static HB_NOINLINE void hb_forked(void) {
  if (hb_load_relaxed(&hb.on) && hb_load_relaxed(&hb.wiped->alive) && (uint32_t)hb_sys1(HB_SYS_getpid, 0) != hb.pid) {
    hb_sys3(HB_SYS_madvise, hb.wiped, sizeof *hb.wiped, HB_MADV_DONTNEED);
    if (hb.alloc_table) hb_sys3(HB_SYS_madvise, hb.alloc_table, ((uint64_t)hb.alloc_mask + 1) * 8, HB_MADV_DONTNEED);
  }
  hb_thread_ready(hb_self());
}

#define HB_FORK(symbol)                                           \
  HB_EXPORT int symbol(void) {                                    \
    typedef int (*fn)(void);                                      \
    fn real = HB_REAL(fn, symbol);                                \
    if (!real) return (int)hb_fail(HB_ENOSYS);                    \
    int r = real();                                               \
    if (r == 0) hb_forked();                                      \
    return r;                                                     \
  }
HB_FORK(fork)
HB_FORK(_Fork)

#define HB_EXIT(symbol)                                           \
  HB_EXPORT void symbol(int status) {                             \
    typedef void (*fn)(int);                                      \
    fn real = HB_REAL(fn, symbol);                                \
    struct hb_tls *t = hb_self();                                 \
    if (t->slot) hb_thread_leave(t, 1);                           \
    if (real) real(status);                                       \
    for (;;) hb_raw6(HB_SYS_exit_group, status, 0, 0, 0, 0, 0);                 \
  }
HB_EXIT(_exit)
HB_EXIT(_Exit)

/* ---- loading: a jump, since dlopen looks its caller up by the return address (RUNPATH, namespaces); the
 * collector finds the new mappings when it sees the generation move ---- */

/* Objects come or go. Those that an attached program loads make their calls unseen until the attacher has redirected them: no signal is to
 * meet one. hook path */
static void hb_loading(int more) {
  if (!hb.slot) return;
  if (HB_LEAVES && more) atomic_fetch_or_explicit(&hb.slot->flags, HB_PROCF_LOADING, memory_order_relaxed);
  hb_add_relaxed(&hb.slot->modules_gen, 1u);
}

HB_EXPORT void *dlopen(const char *file, int flags) {
  typedef void *(*fn)(const char *, int);
  fn real = HB_REAL(fn, dlopen);
  if (HB_UNLIKELY(!real)) return NULL;
  hb_loading(1);
  return real(file, flags);
}

HB_EXPORT void *dlmopen(long ns, const char *file, int flags) {
  typedef void *(*fn)(long, const char *, int);
  fn real = HB_REAL(fn, dlmopen);
  if (HB_UNLIKELY(!real)) return NULL;
  hb_loading(1);
  return real(ns, file, flags);
}

HB_EXPORT int dlclose(void *handle) {
  typedef int (*fn)(void *);
  fn real = HB_REAL(fn, dlclose);
  if (HB_UNLIKELY(!real)) return -1;
  hb_loading(0);
  return real(handle);
}

#endif
