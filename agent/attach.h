/* attach.h: from the environment variable to a mapped, checked segment, and the announcement of who we are. Runs
 * in the constructor, on the thread that loads us, before main. Whatever goes wrong the program runs on as if
 * we were not there. */
#ifndef HB_ATTACH_H
#define HB_ATTACH_H

#include "agent/session.h"
#include "hooks/exec.h"
#include "hooks/life.h"

/* What the kernel told the process at its start. */
struct hb_auxv {
  uint64_t vdso, random, signal_frame;
  uint64_t first[2];
};

static struct hb_auxv hb_read_auxv(void) {
  struct hb_auxv a = {0, 0, HB_MIN_SIGNAL_STACK, {0, 0}};
  uint64_t v[64];
  long fd = hb_open("/proc/self/auxv", 02000000);
  if (hb_is_err(fd)) return a;
  long n = hb_sys3(HB_SYS_read, fd, v, sizeof v);
  hb_sys1(HB_SYS_close, fd);
  if (n >= 16) a.first[0] = v[0], a.first[1] = v[1];
  for (long i = 0; i + 1 < n / 8; i += 2) {
    if (v[i] == AT_SYSINFO_EHDR) a.vdso = v[i + 1];
    if (v[i] == AT_RANDOM) a.random = v[i + 1];
    if (v[i] == 51 /* AT_MINSIGSTKSZ */) a.signal_frame = v[i + 1];
  }
  return a;
}

static uint64_t hb_vdso_base;

/* Bounds of the main stack: the kernel put AT_RANDOM's bytes above every frame; below it grows to its limit. */
static void hb_main_stack(uint64_t random) {
  uint64_t limit[2] = {8u << 20, 0};
  hb_sys4(HB_SYS_prlimit64, 0, 3 /* RLIMIT_STACK */, NULL, limit);
  /* glibc's default for threads: the limit, or 2 MiB when there is none (nptl/nptl-stack.c) */
  hb.default_stack = !hb.is_glibc ? 0 : limit[0] > (1ull << 40) ? 2u << 20 : limit[0];
  if (limit[0] > (1ull << 30)) limit[0] = 1ull << 30;
  if (limit[0] < (8u << 20)) limit[0] = 8u << 20; /* it may be raised later */
  hb.main_stack_hi = random & ~7ull;
  hb.main_stack_lo = random > limit[0] ? random - limit[0] : 0;
}

/* ---- modules ---- */

struct hb_module_buf {
  struct hb_rec_module r;
  char path[512];
};

/* dl_iterate_phdr callback: one MODULE record. init only, under busy */
static int hb_module_visit(struct dl_phdr_info *info, size_t size, void *arg) {
  struct hb_tls *t = arg;
  struct hb_module_buf m;
  uint64_t lo = UINT64_MAX, hi = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const Elf64_Phdr *p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD) continue;
    uint64_t a = info->dlpi_addr + p->p_vaddr;
    if (a < lo) lo = a;
    if (a + p->p_memsz > hi) hi = a + p->p_memsz;
  }
  if (lo >= hi) return 0;
  if ((uintptr_t)hb_real.malloc - lo < hi - lo) hb.malloc_lo = lo, hb.malloc_hi = hi;
  const char *path = info->dlpi_name ? info->dlpi_name : "";
  if (hb_vdso_base >= lo && hb_vdso_base < hi) path = "[vdso]";
  size_t n = hb_strlen(path);
  if (n > sizeof m.path) n = sizeof m.path;
  hb_rec_init(&m.r.rec, HB_REC_MODULE, 0, 0, hb_now_ns());
  m.r.proc_uid = hb.uid;
  m.r.path_bytes = (uint32_t)n;
  m.r.bias = info->dlpi_addr;
  m.r.lo = lo;
  m.r.hi = hi;
  for (size_t i = 0; i < ((n + 7) & ~7ul); i++) m.path[i] = i < n ? path[i] : 0;
  if (!hb_put(t, &m.r.rec, (uint32_t)(sizeof m.r + ((n + 7) & ~7ul)), NULL, 0))
    hb_add_relaxed(&hb.slot->modules_lost, 1u);
  return 0;
}

static void hb_modules_announce(struct hb_tls *t) {
  if (!hb_real.iterate || !hb_begin(t)) return;
  if (!t->announced) hb_announce(t);
  ((hb_iterate_fn)hb_real.iterate)(hb_module_visit, t);
  hb_end(t, 0, HB_FRAME);
}

/* What a program used before it was recorded: the kernel's exec, the loader, constructors that ran before ours. Not a sample of it but all of
 * it, and the collector takes off what the image before it had used (an exec keeps the CPU clock). init only */
static void hb_emit_exec(struct hb_tls *t, uint64_t cpu_ns) {
  if (!hb.cpu_period_ns || !hb_load_relaxed(&hb.header->recording) || !hb_begin(t)) return;
  if (!t->announced) hb_announce(t);
  struct hb_rec_sample r;
  memset(&r, 0, sizeof r);
  hb_rec_init(&r.rec, HB_REC_SAMPLE, HB_HOOK_execve, 0, hb_now_ns());
  r.kind = HB_SAMPLE_PERIODIC;
  r.cpu_ns = r.weight_ns = cpu_ns;
  r.stack.flags = HB_STACK_NONE;
  hb_put(t, &r.rec, sizeof r, NULL, 0);
  hb_end(t, 0, HB_FRAME);
}

/* ---- the segment ---- */

/* Map and check: every size that is used later comes from here. Returns HB_REFUSE_*. */
static uint32_t hb_map(const struct hb_hello *hello, int fd) {
  struct hb_geometry g;
  if (hello->version != HB_ABI_VERSION) return HB_REFUSE_VERSION;
  if (hello->segment_bytes < sizeof(struct hb_header) || !hb_sealed(fd, hello->segment_bytes)) return HB_REFUSE_MMAP;
  long p = hb_sys6(HB_SYS_mmap, 0, (long)hello->segment_bytes, HB_PROT_RW, HB_MAP_SHARED, fd, 0);
  if (hb_is_err(p)) return HB_REFUSE_MMAP;
  struct hb_header *h = (struct hb_header *)p;
  if (!hb_geometry_read(h, hello->segment_bytes, &g) || !hb_mapping_note((uint64_t)p, g.bytes)) {
    hb_sys2(HB_SYS_munmap, p, g.bytes);
    return HB_REFUSE_VERSION;
  }
  struct hb_wiped *w = hb_pages(sizeof *w);
  uint64_t table = (uint64_t)g.alloc_slots * 8;
  if (!w || hb_is_err(hb_sys3(HB_SYS_madvise, w, sizeof *w, HB_MADV_WIPEONFORK))) return HB_REFUSE_MMAP;
  if (!(hb.slabs = hb_pages((g.threads_cap + HB_SLAB - 1) / HB_SLAB * sizeof *hb.slabs))) return HB_REFUSE_MMAP;
  if (g.alloc_slots >= HB_ALLOC_PROBES && (g.alloc_slots & (g.alloc_slots - 1)) == 0 &&
      (hb.alloc_table = hb_pages(table)) != NULL) {
    hb_sys3(HB_SYS_madvise, hb.alloc_table, table, HB_MADV_WIPEONFORK);
    hb.alloc_mask = g.alloc_slots - 1;
  }
  hb_store_relaxed(&w->alive, 1u);
  hb.base = (char *)p;
  hb.procs = (struct hb_proc *)(hb.base + g.procs_off);
  hb.threads = (struct hb_thread *)(hb.base + g.threads_off);
  hb.subbufs = (struct hb_subbuf *)(hb.base + g.ring_ctl_off);
  hb.ring = hb.base + g.ring_data_off;
  hb.ring_bytes = g.ring_bytes;
  hb.ring_count = g.ring_count;
  hb.threads_cap = g.threads_cap;
  hb.procs_cap = g.procs_cap;
  hb.features = g.features;
  hb.signal = g.signal;
  hb.moves = g.signal == HB_SIGURG ? HB_MOVES : 0;
  hb.cookie = g.cookie & ~0xffu;
  hb.tick_ns = g.tick_ns;
  hb.alloc_period = g.alloc_period;
  hb.lock_threshold_ns = g.lock_threshold_ns < UINT32_MAX ? g.lock_threshold_ns : UINT32_MAX;
  hb.release_debt_ns = g.release_debt_ns ? g.release_debt_ns : 1;
  hb_cycles_mult = HB_HAVE_CYCLES && !hb_counter_off ? g.cycles_mult : 0;
  hb.stamps_mult = hb_cycles_mult ? (uint64_t)(4294967296.0 / (double)hb_cycles_mult * 1048576.0) : 1u << 20;
  hb.cpu_period_ns = g.features & HB_FEATURE_CPU ? g.cpu_period_ns : 0;
  uint64_t call = g.features & HB_FEATURE_CALL ? g.call_threshold_ns : UINT64_MAX / 4;
  hb.call_threshold = hb_cycles_mult ? (uint64_t)((double)call * 4294967296.0 / (double)hb_cycles_mult) : call;
  uint64_t wake = g.features & HB_FEATURE_LOCK ? g.lock_threshold_ns : UINT64_MAX / 4;
  if (wake < HB_WAIT_ALWAYS_NS) wake = HB_WAIT_ALWAYS_NS;
  hb.wake_threshold = hb_cycles_mult ? (uint64_t)((double)wake * 4294967296.0 / (double)hb_cycles_mult) : wake;
  hb.wiped = w;
  hb_compiler_barrier();
  hb.header = h;
  return HB_REFUSE_NO;
}

/* Map the unwind tables, read-only; without them stacks go by frame pointers. init only */
static void hb_map_tables(const struct hb_hello *hello, int fd) {
  if (fd < 0 || !hello->tables_bytes || !hb_sealed(fd, hello->tables_bytes)) return;
  long p = hb_sys6(HB_SYS_mmap, 0, (long)hello->tables_bytes, 1 /* PROT_READ */, HB_MAP_SHARED, fd, 0);
  if (!hb_is_err(p) && (!hb_mapping_note((uint64_t)p, hello->tables_bytes) || !hb_tables_open(&hb_tables, (const void *)p, hello->tables_bytes)))
    hb_unmap((const void *)p, hello->tables_bytes);
  hb.start_lo = (uintptr_t)__start_hb_thread_text;
  hb.start_hi = (uintptr_t)__stop_hb_thread_text;
}

/* The process has its slot: from here on its threads join. init only */
static void hb_ready(struct hb_ready *ready, struct hb_tls *t) {
  hb_mutex_check();
  hb_cond_check();
  hb_jump_check();
  if (!hb.mutex_peek) hb_store_relaxed(&hb.slot->flags, hb_load_relaxed(&hb.slot->flags) | HB_PROCF_MUTEX_OPAQUE);
  ready->proc_slot = hb.slot_index;
  ready->proc_uid = hb.uid;
  t->flags = 0;
  hb_store_release(&hb.on, 1u);
}

/* init only */
static void hb_attach(const char *value) {
  struct hb_hello hello;
  struct hb_ready ready = {HB_MAGIC, HB_ABI_VERSION, HB_REFUSE_NO, 0, 0};
  struct hb_tls *t = hb_self();
  int fd[2];
  struct hb_session session;
  if (!hb_session_parse(value, &session)) return;
  hb.home = (struct hb_home){session.uid, session.userns, session.dev, session.ino};
  long s = hb_ask_session(&session, 0, &hello, fd);
  if (hb_is_err(s)) return;
  hb_session_keep(&session);
  void *room = hb_pages(HB_ALONE_BYTES); /* the first thread's, before what we can do without has taken all */
  ready.refused = hb_real.malloc && hb_real.free ? hb_map(&hello, fd[0]) : HB_REFUSE_UNRESOLVED;
  if (!ready.refused) hb_map_tables(&hello, fd[1]);
  if (room) hb_unmap(room, HB_ALONE_BYTES);
  hb_sys1(HB_SYS_close, fd[0]);
  if (fd[1] >= 0) hb_sys1(HB_SYS_close, fd[1]);
  if (!ready.refused && !hb_proc_claim(0, hello.host_pid, 0)) ready.refused = HB_REFUSE_NO_SLOT;
  if (!ready.refused) {
    hb_ready(&ready, t);
    if (hb_thread_join_session(t, NULL)) {
      hb_proc_announce(t);
      hb_emit_exec(t, t->slot->cpu_start_ns);
      hb_modules_announce(t);
      hb_signal_install();
    }
  }
  hb_sys6(HB_SYS_sendto, s, (long)&ready, sizeof ready, HB_MSG_NOSIGNAL, 0, 0);
  if (!ready.refused && hb_tables.base) { /* the collector compiles what is new; whole closures take some ten ms */
    struct hb_timespec limit = {0, HB_TABLES_WAIT_MS * 1000}; /* microseconds: a timeval */
    char go;
    hb_sys6(HB_SYS_setsockopt, s, HB_SOL_SOCKET, HB_SO_RCVTIMEO, (long)&limit, sizeof limit, 0);
    hb_sys3(HB_SYS_read, s, &go, 1);
  }
  hb_sys1(HB_SYS_close, s);
}

#endif
