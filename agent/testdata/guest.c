//go:build ignore

/* guest.c: the whole agent as a preloaded object, with a constructor that tests parts of it in place of the one that
 * attaches. The session is made of plain memory, without a collector or a sampler. Exits 0 when all held. */
#include "agent/attach.h"

static void failed(int line, const char *what) {
  size_t n = hb_strlen(what);
  char number[] = "guest.c:0000: ";
  for (int i = 11; line; line /= 10) number[i--] = (char)('0' + line % 10);
  hb_sys3(HB_SYS_write, 2, number, sizeof number - 1);
  hb_sys3(HB_SYS_write, 2, what, n);
  hb_sys3(HB_SYS_write, 2, "\n", 1);
  hb_sys1(HB_SYS_exit_group, 1);
}
#define CHECK(c) ((c) ? (void)0 : failed(__LINE__, #c " does not hold"))

static void session(void) {
  static struct hb_header header;
  struct hb_wiped *w = hb_pages(sizeof *w);
  hb.header = &header;
  hb.wiped = w;
  hb.procs = hb_pages(sizeof *hb.procs);
  hb.threads = hb_pages(8 * sizeof *hb.threads);
  hb.subbufs = hb_pages(sizeof *hb.subbufs);
  hb.slabs = hb_pages(sizeof *hb.slabs);
  hb.ring_bytes = 1 << 20;
  hb.ring = hb_pages(hb.ring_bytes);
  CHECK(w && hb.procs && hb.threads && hb.subbufs && hb.slabs && hb.ring);
  hb.ring_count = hb.procs_cap = 1;
  hb.threads_cap = 8;
  hb.features = HB_FEATURE_CPU | HB_FEATURE_ALLOC | HB_FEATURE_LOCK | HB_FEATURE_CALL;
  hb.signal = HB_SIGURG;
  hb.tick_ns = 1000000;
  hb.stamps_mult = 1u << 20;
  hb.cpu_period_ns = 1000000;
  hb_store_relaxed(&w->alive, 1u);
  hb_store_relaxed(&header.tick, (uint64_t)1);
  hb_store_relaxed(&header.recording, 1u);
  CHECK(hb_proc_claim(0, 0, 0));
  hb_store_relaxed(&hb.on, 1u);
  CHECK(hb_thread_join_session(hb_self(), NULL));
}

/* How many records of that type have been written. */
static int records(uint32_t type) {
  int n = 0;
  for (uint64_t at = 0, head = hb_load_relaxed(&hb.subbufs->head); at < head;) {
    const struct hb_rec *r = (const struct hb_rec *)(hb.ring + at);
    CHECK(r->bytes >= 8 && r->bytes % 8 == 0);
    n += r->type == type;
    at += r->bytes;
  }
  return n;
}

/* No more of a text is read than tells: its rest cannot be. */
static void short_text(void) {
  char *p = hb_pages(8192);
  CHECK(p && !hb_is_err(hb_sys2(HB_SYS_munmap, p + 4096, 4096)));
  char *s = p + 4096 - HB_SHORT_TEXT;
  memset(s, 'x', HB_SHORT_TEXT);
  CHECK(!hb_short_text(s, 1u << 30));
  CHECK(!hb_short_text(p + 4096 - 5, 5));
  s[HB_SHORT_TEXT - 1] = 0;
  CHECK(hb_short_text(s, 1u << 30) && hb_short_text(s, HB_SHORT_TEXT) && !hb_short_text(s, HB_SHORT_TEXT - 1));
  CHECK(!hb_short_text("", 0) && hb_short_text("", 1) && hb_short_text("abc", 4) && !hb_short_text("abc", 3));
}

static HB_NOINLINE void by_free(struct hb_tls *t) { hb_emit_free(t, 4096); hb_compiler_barrier(); }
static HB_NOINLINE void by_name(struct hb_tls *t) { hb_renamed(t, 0, "name"); hb_compiler_barrier(); }
static HB_NOINLINE void by_process(struct hb_tls *t) { hb_proc_announce(t); hb_compiler_barrier(); }
static HB_NOINLINE void by_modules(struct hb_tls *t) { hb_modules_announce(t); hb_compiler_barrier(); }
static HB_NOINLINE void by_exec(struct hb_tls *t) { hb_emit_exec(t, 1); hb_compiler_barrier(); }
static HB_NOINLINE void by_sample(struct hb_tls *t) {
  hb_emit_sample(t, HB_SAMPLE_SYNC, HB_HOOK_read, 0, NULL, HB_FRAME, 0);
  hb_compiler_barrier();
}
static HB_NOINLINE void by_alloc(struct hb_tls *t) {
  hb_emit_alloc(t, HB_HOOK_malloc, 4096, 1, 1, HB_FRAME);
  hb_compiler_barrier();
}
static HB_NOINLINE void by_release(struct hb_tls *t) {
  hb_emit_release(t, HB_HOOK_sem_post, 0, 1, hb_now_ns(), 1, 1, NULL, 0, HB_FRAME);
  hb_compiler_barrier();
}
static HB_NOINLINE void by_interval(struct hb_tls *t) {
  struct hb_interval i = {.hook = HB_HOOK_read, .began = hb_stamp()};
  hb_emit_interval(t, &i, HB_FRAME);
  hb_compiler_barrier();
}
static HB_NOINLINE void by_hold(struct hb_tls *t) {
  CHECK(hb_hold_begin(t, HB_HOOK_pthread_mutex_lock, 4096, HB_FRAME) != NULL);
}

/* A signal that falls into a section of ours is sampled when that ends, whatever it writes. */
static void deferred(void) {
  struct hb_tls *t = hb_self();
  static void (*const emitters[])(struct hb_tls *) = {by_free,   by_name,    by_process,  by_modules, by_exec,
                                                      by_sample, by_alloc,   by_release,  by_interval, by_hold};
  for (size_t i = 0; i < sizeof emitters / sizeof *emitters; i++)
    for (uint32_t ask = HB_ASK_PERIODIC; ask <= HB_ASK_GAP; ask++) {
      CHECK(t->deferred == 0 && t->busy_sp == 0);
      t->busy_sp = (uintptr_t)HB_FRAME - 4096; /* the section that is entered next, when the signal comes */
      hb_take_sample(t, ask, 0, NULL, HB_FRAME, 0, 0);
      t->busy_sp = 0;
      CHECK(t->deferred == ask);
      int had = records(HB_REC_SAMPLE);
      emitters[i](t);
      CHECK(t->deferred == 0 && t->busy_sp == 0);
      CHECK(records(HB_REC_SAMPLE) == had + 1 + (emitters[i] == by_sample || emitters[i] == by_exec));
    }
}

/* But nothing follows a thread's last record. */
static void last(void) {
  struct hb_tls *t = hb_self();
  t->busy_sp = 1;
  hb_take_sample(t, HB_ASK_GAP, 0, NULL, HB_FRAME, 0, 0);
  t->busy_sp = 0;
  hb_thread_leave(t, 0);
  uint64_t head = hb_load_relaxed(&hb.subbufs->head);
  CHECK(records(HB_REC_THREAD_EXIT) == 1);
  const struct hb_rec *r = (const struct hb_rec *)(hb.ring + head - sizeof(struct hb_rec_exit));
  CHECK(r->type == HB_REC_THREAD_EXIT && r->bytes == sizeof(struct hb_rec_exit));
}

__attribute__((constructor(101))) static void test(void) {
  hb_resolve_all();
  CHECK(hb_real.malloc && hb_real.pthread_cond_wait);
  short_text();
  session();
  hb_jump_check();
  CHECK(!hb.is_glibc || HB_ELF_MACHINE != 62 /* EM_X86_64 */ || hb.jump_kind == HB_JUMP_HIDDEN);
  deferred();
  last();
  hb_sys1(HB_SYS_exit_group, 0);
}
