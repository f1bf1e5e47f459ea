/* thread.h: a thread's life in the segment: finding a slot, saying hello, saying goodbye; and what a fork child
 * does before anything else.
 *
 * Threads made through pthread_create announce themselves on their first instruction; all others (the main
 * thread of a fork child, raw clones, threads older than the agent) are met at their first hook. */
#ifndef HB_THREAD_H
#define HB_THREAD_H

#include "agent/emit.h"
#include "agent/local.h"
#include "syscallproxy/proxy.h"

static void hb_signal_install(void);

/* ---- stack bounds ---- */

static uint64_t hb_hex(const char **p) {
  uint64_t v = 0;
  for (;; (*p)++) {
    char c = **p;
    if (c >= '0' && c <= '9') v = v << 4 | (uint64_t)(c - '0');
    else if (c >= 'a' && c <= 'f') v = v << 4 | (uint64_t)(c - 'a' + 10);
    else return v;
  }
}

/* The mapping that holds `sp`, from /proc/self/maps; for threads whose library did not lay out their stack.
 * Up to a millisecond, once per such thread. hook path */
static void hb_stack_from_maps(struct hb_tls *t, uintptr_t sp) {
  char buf[2048];
  long fd = hb_open("/proc/self/maps", 02000000 /* O_CLOEXEC */), got;
  uint32_t have = 0;
  if (hb_is_err(fd)) return;
  while ((got = hb_sys3(HB_SYS_read, fd, buf + have, sizeof buf - 1 - have)) > 0) {
    char *line = buf, *end;
    have += (uint32_t)got;
    buf[have] = 0;
    for (;;) {
      for (end = line; *end && *end != '\n'; end++) {}
      if (!*end) break;
      const char *p = line;
      uint64_t lo = hb_hex(&p), hi;
      p++;
      hi = hb_hex(&p);
      if (sp >= lo && sp < hi) {
        t->stack_lo = lo;
        t->stack_hi = hi;
        goto done;
      }
      line = end + 1;
    }
    have = (uint32_t)(buf + have - line);
    if (have >= sizeof buf - 1) have = 0; /* a line longer than the buffer: its rest will not parse as a range */
    for (uint32_t i = 0; i < have; i++) buf[i] = line[i];
  }
done:
  hb_sys1(HB_SYS_close, fd);
}

/* ---- slots ---- */

/* Make a mark of the segment at least `to`. Whoever else writes there holds us up for a moment only. hook path */
static void hb_raise(_Atomic uint32_t *mark, uint32_t to) {
  uint32_t v = hb_load_relaxed(mark);
  for (uint32_t tries = 0; v < to && tries < 100; tries++)
    if (hb_cas_seq(mark, &v, to)) return;
}

/* Claim a free thread slot: a low one, so that the sampler's scan stays short, without going through all that are taken
 * each time: from the lowest that this process knows of, and now and then from the first. NULL: none. hook path */
static struct hb_thread *hb_slot_claim(void) {
  uint32_t hint = hb_load_relaxed(&hb.slot_hint);
  if (hint >= hb.threads_cap || hb_add_relaxed(&hb.claims, 1u) % 64 == 63) hint = 0;
  for (uint32_t k = 0; k < hb.threads_cap; k++) {
    uint32_t i = hint + k < hb.threads_cap ? hint + k : hint + k - hb.threads_cap, free_ = 0;
    struct hb_thread *s = &hb.threads[i];
    if (hb_load_relaxed(&s->uid) != 0 || !hb_cas_seq(&s->uid, &free_, HB_UID_CLAIMING)) continue;
    hb_raise(&hb.header->threads_high, i + 1);
    hb_store_relaxed(&hb.slot_hint, i + 1);
    return s;
  }
  hb_add_relaxed(&hb.header->threads_unslotted, (uint64_t)1);
  return NULL;
}

struct hb_birth { /* what the creator of a thread knew */
  uint64_t start_routine;
  uint32_t parent_uid;
  uint64_t stack_bytes; /* 0: unknown */
  uint32_t lent;        /* it had lent the sampling signal (sampler/lend.h) */
};

/* Has the thread an alternate signal stack without room for our handler? hook path */
static int hb_alternate_small(void) {
  struct hb_range r = hb_stack_alternate();
  int small = r.hi && r.hi - r.lo < hb.signal_stack;
  if (small) HB_COUNT(small_stacks);
  return small;
}

/* Make the calling thread a recorded one. hook path */
static HB_NOINLINE int hb_thread_join_session(struct hb_tls *t, const struct hb_birth *birth) {
  uintptr_t sp = (uintptr_t)__builtin_frame_address(0), tp = hb_thread_pointer();
  uint32_t tid = (uint32_t)hb_sys1(HB_SYS_gettid, 0), is_main = tid == hb.pid;
  struct hb_thread *s = hb_slot_claim();
  uint32_t memory = 0;
  struct hb_local *l = s ? hb_local_take((uint32_t)(s - hb.threads), &memory) : NULL;
  if (!l) {
    t->flags |= HB_TLS_UNSLOTTED;
    t->alloc_left = UINT64_MAX / 2; /* not again for every allocation */
    t->alloc_given = t->alloc_left;
    if (s) {
      hb_store_relaxed(&hb.slot->disabled, (uint32_t)HB_OFF_NO_MEMORY);
      hb_store_release(&s->uid, 0u);
    }
    return 0;
  }
  uint32_t flags = (is_main ? HB_THREADF_MAIN : 0u) | (birth || is_main ? 0u : HB_THREADF_LAZY);
  t->local = l;
  t->flags = (t->flags & ~(uint32_t)(HB_TLS_FRESH | HB_TLS_ALONE)) | memory;
  if (birth && birth->stack_bytes && sp < tp && tp - sp < birth->stack_bytes) {
    t->stack_hi = tp;
    t->stack_lo = tp - birth->stack_bytes + 4096;
  } else if (sp >= hb.main_stack_lo && sp < hb.main_stack_hi) {
    t->stack_lo = hb.main_stack_lo;
    t->stack_hi = hb.main_stack_hi;
  } else if (t->stack_hi == 0 || sp < t->stack_lo || sp >= t->stack_hi) {
    hb_stack_from_maps(t, sp);
    flags |= HB_THREADF_STACK_GUESSED;
  }
  t->seq = 0;
  t->announced = 0;
  t->need_full = 1;
  t->busy_sp = 0;
  t->deferred = t->holds = t->holding = 0;
  t->left_pc = birth ? birth->start_routine : 1;
  t->left_stamp = hb_stamp();
  t->proxy_depth = 0;
  t->outer.sp = 0;
  t->subbuf = tid % hb.ring_count;
  t->random = (uint64_t)tid * 0x9e3779b97f4a7c15ull ^ hb_stamp() << 1 ^ 1;
  t->alloc_objects = t->free_objects = 0;
  t->alloc_period = hb.alloc_period;
  t->alloc_tick = 0;
  t->alloc_credit = HB_ALLOC_BURST;
  t->wait_threshold_ns = (uint32_t)hb.lock_threshold_ns;
  t->wait_credit = HB_WAIT_BURST;
  t->debt_shift = 0;
  t->alloc_left = t->alloc_given = hb_alloc_gap(t);
  uint64_t cpu = hb_thread_cpu_ns();
  /* What a thread used before it got here is its own, too: its creator books it (hooks/life.h). A fork child's clock began with it. */
  uint64_t from = birth || (is_main && hb_load_relaxed(&hb.slot->flags) & HB_PROCF_FORKED) ? 0 : cpu;
  hb_points_begin(t, from, cpu);
  s->proc = hb.slot_index;
  s->proc_uid = hb.uid;
  s->tid = tid;
  s->parent_uid = birth ? birth->parent_uid : 0;
  s->start_ns = hb_now_ns();
  s->start_routine = birth ? birth->start_routine : 0;
  s->stack_hi = t->stack_hi;
  s->cpu_start_ns = from;
  s->thread_pointer = hb_pthread_self();
  for (int i = 0; i < HB_NAME_BYTES; i++) s->name[i] = 0;
  hb_sys2(HB_SYS_prctl, 16 /* PR_GET_NAME */, s->name);
  hb_store_relaxed(&s->flags, flags);
  hb_store_relaxed(&s->last_tick, (uint64_t)0);
  hb_store_relaxed(&s->alloc_objects, (uint64_t)0);
  hb_store_relaxed(&s->alloc_bytes, (uint64_t)0);
  hb_store_relaxed(&s->free_objects, (uint64_t)0);
  hb_store_relaxed(&s->calls, (uint64_t)0);
  hb_store_relaxed(&s->calls_slow, (uint64_t)0);
  hb_store_relaxed(&s->waits, (uint64_t)0);
  hb_store_relaxed(&s->wait_ns, (uint64_t)0);
  hb_store_relaxed(&s->in_hook, 0u);
  hb_store_relaxed(&s->in_object, (uint64_t)0);
  hb_store_relaxed(&s->seq, 0u);
  hb_store_relaxed(&s->lost, 0u);
  hb_store_relaxed(&s->cpu_ns, from);
  hb_store_relaxed(&s->samples, (uint64_t)0);
  hb_store_relaxed(&s->own_stamps, (uint64_t)0);
  uint64_t mask = 0;
  hb_sys4(HB_SYS_rt_sigprocmask, 0, NULL, &mask, 8);
  t->flags = (t->flags & ~(uint32_t)HB_TLS_MOVED) | hb.moved;
  hb_rest_set(t, HB_TLS_BLOCKED, (mask & hb_signal_bit()) != 0);
  hb_rest_set(t, HB_TLS_SMALL, !birth && hb_alternate_small()); /* a new thread has none */
  hb_store_relaxed(&s->state, birth ? (uint32_t)HB_BLOCKED : t->rest);
  uint32_t uid = hb_add_relaxed(&hb.header->next_thread_uid, 1u) + 1; /* as late as a process's */
  t->uid = uid;
  t->tid = tid;
  hb_store_release(&s->uid, uid); /* the sampler and the collector look from here on */
  hb_compiler_barrier();
  t->slot = s; /* from here on a signal finds its slot */
  return 1;
}

static void hb_after_fork(struct hb_tls *t);
static void hb_lent_forked(const struct hb_tls *t);
#ifdef HB_ATTACHED
static void hb_join_late(void);
#endif

/* Is this a recorded thread of a recorded process? Joins, or puts a fork child right, when it has to. hook path */
static int hb_thread_ready(struct hb_tls *t) {
  if (HB_UNLIKELY(!hb_load_relaxed(&hb.on))) {
#ifdef HB_ATTACHED
    hb_join_late();
#endif
    return 0;
  }
  if (HB_UNLIKELY(!hb_load_relaxed(&hb.wiped->alive))) hb_after_fork(t);
  if (HB_LIKELY(t->slot != NULL)) return 1;
  if (t->flags & (HB_TLS_DEAD | HB_TLS_UNSLOTTED) || !hb_load_relaxed(&hb.on)) return 0;
  return hb_thread_join_session(t, NULL);
}

/* Goodbye: totals, then the slot is free for the next. vfork children and others on borrowed memory do
 * nothing. hook path */
static HB_NOINLINE void hb_thread_leave(struct hb_tls *t, int process_too) {
  struct hb_thread *s = t->slot;
  if (!s || !hb_load_relaxed(&hb.on) || !hb_load_relaxed(&hb.wiped->alive)) return;
  if ((uint32_t)hb_sys1(HB_SYS_gettid, 0) != t->tid) return;
  struct hb_block b;
  memset(&b, 0, sizeof b);
  uint32_t x = t->rest, slot = (uint32_t)(s - hb.threads);
  if (!hb_cas_seq(&s->state, &x, (uint32_t)HB_EXITED)) {
    if (x == HB_BLOCKED) hb_store_release(&s->state, (uint32_t)HB_EXITED); /* leaving from inside a handler or a cancelled call */
    else hb_block_slow(t, s, (struct hb_outer){0}, HB_EXITED, &b, HB_FRAME);
  }
  hb_sample_point(t, 0, 0, HB_FRAME); /* work since its last call */
  if (hb_begin(t)) { /* nobody signals it any more: this is its last record */
    struct hb_rec_exit r;
    if (!t->announced) hb_announce(t);
    hb_publish_counters(t, s);
    hb_rec_init(&r.rec, HB_REC_THREAD_EXIT, 0, 0, hb_now_ns());
    r.cpu_ns = hb_thread_cpu_ns();
    hb_store_relaxed(&s->cpu_ns, r.cpu_ns);
    r.alloc_objects = hb_load_relaxed(&s->alloc_objects);
    r.alloc_bytes = hb_load_relaxed(&s->alloc_bytes);
    r.free_objects = hb_load_relaxed(&s->free_objects);
    r.calls = hb_load_relaxed(&s->calls);
    r.calls_slow = hb_load_relaxed(&s->calls_slow);
    r.waits = hb_load_relaxed(&s->waits);
    r.wait_ns = hb_load_relaxed(&s->wait_ns);
    r.queue_ns = 0;
    hb_put(t, &r.rec, sizeof r, NULL, 0);
    if (process_too) {
      struct hb_rec p;
      hb_rec_init(&p, HB_REC_PROC_EXIT, 0, 0, r.rec.time_ns);
      hb_put(t, &p, sizeof p, NULL, 0);
      hb_store_release(&hb.slot->state, (uint32_t)HB_PROC_EXITED);
    }
    hb_end_last(t);
  }
  hb_add_relaxed(&hb.slot->own_stamps, hb_load_relaxed(&s->own_stamps));
  hb_store_relaxed(&s->own_stamps, (uint64_t)0);
  t->flags |= HB_TLS_DEAD;
  t->slot = NULL;
  hb_compiler_barrier();
  struct hb_local *l = t->local;
  if (l && hb_load_relaxed(&hb.gil.at) && !(t->flags & (HB_TLS_ALONE | HB_TLS_FRESH)) && l->python.gil.began)
    hb_sub_relaxed(&hb.wiped->gil.waiting, 1u); /* it ends where it waited: its interpreter is ending */
  t->local = NULL;
  if (l) hb_local_give(slot, l, t->flags);
  if (slot < hb_load_relaxed(&hb.slot_hint)) hb_store_relaxed(&hb.slot_hint, slot);
  hb_store_release(&s->uid, 0u);
}

/* ---- processes ---- */

/* Claim a process slot and fill in who we are. Returns 0 when none is free. init only */
static int hb_proc_claim(uint32_t parent_uid, uint32_t host_pid, uint32_t flags) {
  for (uint32_t i = 0; i < hb.procs_cap; i++) {
    struct hb_proc *p = &hb.procs[i];
    uint32_t free_ = HB_PROC_FREE;
    if (hb_load_relaxed(&p->state) != HB_PROC_FREE ||
        !hb_cas_seq(&p->state, &free_, (uint32_t)HB_PROC_CLAIMING))
      continue;
    hb_raise(&hb.header->procs_high, i + 1);
    p->pid = hb.pid = (uint32_t)hb_sys1(HB_SYS_getpid, 0);
    p->ppid = (uint32_t)hb_sys1(HB_SYS_getppid, 0);
    p->parent_uid = parent_uid;
    p->host_pid = host_pid;
    p->start_ns = hb_now_ns();
    hb_store_relaxed(&p->signal, hb.signal);
    hb_store_relaxed(&p->flags, flags);
    hb_store_relaxed(&p->disabled, (uint32_t)HB_OFF_NO);
    hb_store_relaxed(&p->gate, (uint32_t)HB_GATE_OPEN);
    hb_store_relaxed(&p->modules_gen, 0u);
    hb_store_relaxed(&p->modules_lost, 0u);
    hb_store_relaxed(&p->lost, (uint64_t)0);
    hb_store_relaxed(&p->signals_foreign, (uint64_t)0);
    hb_store_relaxed(&p->signals_stray, (uint64_t)0);
    hb_store_relaxed(&p->small_stacks, (uint64_t)0);
    hb_store_relaxed(&p->walks_refused, (uint64_t)0);
    hb_store_relaxed(&p->alloc_table_full, (uint64_t)0);
    hb_store_relaxed(&p->hooks_unresolved, (uint64_t)0);
    hb_store_relaxed(&p->boot_allocs, (uint64_t)0);
    hb_store_relaxed(&p->codes_unnamed, (uint64_t)0);
    hb_store_relaxed(&p->python_cut, (uint64_t)0);
    hb_store_relaxed(&p->own_stamps, (uint64_t)0);
    for (uint32_t k = 0; k < sizeof p->exe; k++) p->exe[k] = 0;
    hb_readlink("/proc/self/exe", p->exe, sizeof p->exe - 1);
    /* Last: a process that is killed between taking its uid and showing it leaves a hole in the recording's numbers. In a fork
     * child the first write to a page is a fault, and signals are taken on the way back from one: so hb is written before. */
    hb.slot = p;
    hb.slot_index = i;
    *(volatile uint32_t *)&hb.uid = hb.uid;
    uint32_t uid = hb_add_relaxed(&hb.header->next_proc_uid, 1u) + 1;
    hb.uid = uid;
    hb_store_relaxed(&p->uid, uid);
    hb_store_release(&p->state, (uint32_t)HB_PROC_LIVE);
    return 1;
  }
  hb_add_relaxed(&hb.header->procs_unslotted, (uint64_t)1);
  return 0;
}

/* PROC record: by the first thread of a process, right after it joined. init only */
static void hb_proc_announce(struct hb_tls *t) {
  struct hb_rec_proc r;
  if (!hb_begin(t)) return;
  if (!t->announced) hb_announce(t);
  hb_rec_init(&r.rec, HB_REC_PROC, 0, 0, hb.slot->start_ns);
  r.proc_uid = hb.uid;
  r.proc_slot = hb.slot_index;
  r.pid = hb.slot->pid;
  r.parent_uid = hb.slot->parent_uid;
  r.flags = hb_load_relaxed(&hb.slot->flags);
  r.reserved = 0;
  hb_put(t, &r.rec, sizeof r, NULL, 0);
  hb_end(t, 0, HB_FRAME);
}

/* First act of a fork child: become a process of its own. What was inherited (slot, counters, last stack)
 * belongs to the parent and is not touched. init only */
static HB_NOINLINE void hb_after_fork(struct hb_tls *t) {
  uint32_t parent = hb.uid, dead = 0, flags = hb_load_relaxed(&hb.slot->flags) & ~(uint32_t)HB_PROCF_SYNC_ONLY;
  if (!hb_cas_seq(&hb.wiped->alive, &dead, 1u)) return;
  t->slot = NULL;
  atomic_store_explicit(&hb_calls_made, 0u, memory_order_relaxed); /* other threads' are their parent's */
  hb_lent_forked(t);
  t->flags = 0;
  t->busy_sp = 0;
  t->outer.sp = 0;
  t->proxy_depth = 0;
  hb_store_relaxed(&hb.moving, 0u);
  t->waiting = 0; /* its parent's: the child's counts are wiped */
  t->local = NULL;
  hb_local_forked();
  if (!hb_proc_claim(parent, 0, flags | HB_PROCF_FORKED)) {
    hb_store_relaxed(&hb.on, 0u);
    return;
  }
  if (hb_thread_join_session(t, NULL)) hb_proc_announce(t);
}

#endif
