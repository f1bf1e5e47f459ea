/* states.h: what a goroutine's change of state means.
 *
 *      create ─► RUNNABLE ─► RUNNING ─► WAITING ─► READY ─► RUNNING …          exit
 *                   ▲           │ ▲
 *                   └─preempted─┘ └─► SYSCALL ─► RUNNING, or RUNNABLE when its thread lost the processor
 *
 * A wait is measured from WAITING to READY. One shorter than the threshold is counted, and leaves no record. A longer
 * one leaves two: a RELEASE by the goroutine that made it READY, with its stack, and an INTERVAL by the goroutine
 * itself when it runs again, so that interval's end less release's time is how long it was runnable. */
#ifndef HB_GO_STATES_H
#define HB_GO_STATES_H

#include "goruntime/entry.h"
#include "goruntime/stack.h"

/* The runtime's numbers (runtime2.go, the same from Go 1.20 to 1.26). */
enum { HB_G_RUNNABLE = 1, HB_G_RUNNING = 2, HB_G_SYSCALL = 3, HB_G_WAITING = 4, HB_G_DEAD = 6 };

/* The address of the semaphore that semacquire1 waits for: its first argument, spilled above its return address. gp
 * was parked by gopark, whose frame is the first one. 0: there is no such address. */
static u64 hb_go_semaphore(u64 gp) {
  u64 lo = HB_LD(gp, hb_go.g_stack_lo), hi = HB_LD(gp, hb_go.g_stack_hi), bp = HB_LD(gp, hb_go.g_bp);
  if (bp < lo || bp >= hi || hi - bp < 32 || bp & 7) return 0;
  bp = HB_LD(bp, 0); /* semacquire1's */
  if (bp < lo || bp >= hi || hi - bp < 32 || bp & 7) return 0;
  u64 addr = HB_LD(bp, 16);
  return addr & 3 || addr >> 47 || addr < 4096 ? 0 : addr;
}

static inline int hb_go_waits_for_semaphore(u32 hook) {
  return hook == HB_HOOK_go_mutex_lock || hook == HB_HOOK_go_rwmutex_rlock || hook == HB_HOOK_go_rwmutex_lock ||
         hook == HB_HOOK_go_semacquire || hook == HB_HOOK_go_waitgroup_wait;
}

static u64 hb_go_threshold(u32 hook) {
  struct hb_header *h = hb_header();
  switch (hook) {
  case HB_HOOK_go_mutex_lock:
  case HB_HOOK_go_rwmutex_rlock:
  case HB_HOOK_go_rwmutex_lock:
    return h->lock_threshold_ns;
  default:
    return h->call_threshold_ns;
  }
}

/* The hook id of the wait that gp is in; 0: it is none of the program's. */
static u32 hb_go_waits_in(u64 gp) {
  u32 reason = *(const volatile uint8_t *)(gp + hb_go.g_reason);
  u32 hook = reason < HB_GO_REASONS ? hb_go.hooks[reason] : 0u;
  if (!hook || (hb_go_leaf(HB_LD(gp, hb_go.g_startpc)) && HB_LD(gp, hb_go.g_goid) != 1)) return 0; /* the runtime's own */
  return hook + HB_GO_HOOK;
}

/* Goroutine e is made runnable after a wait, by what runs on thread m now: a goroutine, or the scheduler. */
static void hb_go_readied(struct hb_go_entry *e, u64 gp, u64 g, u64 bp, u64 now) {
  u64 since = hb_load_relaxed(&e->since_ns);
  u32 hook = hb_go_waits_in(gp);
  u64 waited = now > since ? now - since : 0;
  hb_store_relaxed(&e->ready_ns, now);
  hb_store_relaxed(&e->waker, 0u);
  e->hook = (uint16_t)hook;
  e->recorded = 0;
  e->state = HB_GO_READY;
  if (!hook) return;
  hb_add_relaxed(&e->waits, 1u);
  hb_add_relaxed(&e->wait_ns, waited);
  if (waited < hb_go_threshold(hook)) {
    hb_add_relaxed(&hb_table()->short_waits, 1u);
    hb_add_relaxed(&hb_table()->short_ns, waited);
    return;
  }
  e->recorded = 1;
  hb_store_relaxed(&e->object, hb_go_waits_for_semaphore(hook) ? hb_go_semaphore(gp) : 0);
  u64 waker = HB_LD(HB_LD(g, hb_go.g_m), hb_go.m_curg);
  if (!waker || waker == gp) return; /* a timer, the network, the garbage collector */
  struct hb_go_entry *w = hb_go_find(waker);
  if (!w) return;
  u32 uid = hb_go_uid(w, waker, now);
  hb_store_relaxed(&e->waker, uid);
  struct hb_go_stack s;
  hb_go_stack_of(&s, waker, g, bp);
  struct hb_rec_release r;
  hb_go_rec(&r.rec, HB_REC_RELEASE, hook == HB_HOOK_go_mutex_lock ? HB_HOOK_go_unlock : HB_HOOK_go_ready, uid,
            hb_go_seq(w), now);
  r.object = hb_load_relaxed(&e->object);
  r.debt_ns = waited;
  r.acquired_ns = 0;
  r.woken = 1;
  r.taken_hook = 0;
  r.taken = (struct hb_stack){0, 0, HB_STACK_NONE, 0, 0, 0};
  r.stack = hb_go_stack_head(&s);
  hb_go_put(&r.rec, sizeof r, s.pcs, s.n);
}

/* Writes an interval of goroutine e that ends now, or has the flag HB_RECF_OPEN. */
static void hb_go_interval_of(struct hb_go_entry *e, u64 gp, const struct hb_go_stack *s, u32 hook, u64 start, u64 now, u32 flags) {
  struct hb_rec_interval r;
  u32 uid = hb_go_uid(e, gp, now);
  hb_go_rec(&r.rec, HB_REC_INTERVAL, hook, uid, hb_go_seq(e), now);
  r.rec.flags = (uint8_t)flags;
  r.start_ns = start;
  r.object = hb_load_relaxed(&e->object);
  r.object2 = hb_load_relaxed(&e->queue_ns);
  r.result = 0;
  r.owner_tid = 0;
  r.releaser = hb_load_relaxed(&e->waker);
  r.release_ns = r.releaser ? hb_load_relaxed(&e->ready_ns) : 0;
  r.stack = hb_go_stack_head(s);
  hb_go_put(&r.rec, sizeof r, s->pcs, s->n);
}

static void hb_go_interval(struct hb_go_entry *e, u64 gp, u64 g, u64 bp, u32 hook, u64 start, u64 now) {
  struct hb_go_stack s;
  hb_go_stack_of(&s, gp, g, bp);
  hb_go_interval_of(e, gp, &s, hook, start, now, 0);
}

/* Goroutine e runs on. */
static void hb_go_runs(struct hb_go_entry *e, u64 gp, u64 g, u64 bp, u64 now) {
  u64 ready = hb_load_relaxed(&e->ready_ns);
  if ((e->state == HB_GO_READY || e->state == HB_GO_RUNNABLE) && now > ready && ready >= hb_load_relaxed(&hb_table()->heard_ns))
    hb_store_relaxed(&e->queue_ns, hb_load_relaxed(&e->queue_ns) + (now - ready));
  if (e->state == HB_GO_READY && e->recorded) hb_go_interval(e, gp, g, bp, e->hook, hb_load_relaxed(&e->since_ns), now);
  e->state = HB_GO_RUNNING;
}

/* A system call of e has ended. */
static void hb_go_called(struct hb_go_entry *e, u64 gp, u64 g, u64 bp, u64 now) {
  u64 since = hb_load_relaxed(&e->since_ns);
  if (now - since < hb_header()->call_threshold_ns || now < since) return;
  hb_store_relaxed(&e->object, 0);
  hb_store_relaxed(&e->waker, 0u);
  hb_go_interval(e, gp, g, bp, HB_HOOK_go_syscall, since, now);
}

static void hb_go_created(struct hb_go_entry *e, u64 g, u64 now) {
  hb_store_relaxed(&e->uid, 0u);
  hb_store_relaxed(&e->seq, 0u);
  hb_store_relaxed(&e->born_ns, now);
  hb_store_relaxed(&e->since_ns, now);
  hb_store_relaxed(&e->ready_ns, now);
  hb_store_relaxed(&e->wait_ns, 0);
  hb_store_relaxed(&e->cpu_ns, 0);
  hb_store_relaxed(&e->queue_ns, 0);
  hb_store_relaxed(&e->waits, 0u);
  hb_store_relaxed(&e->waker, 0u);
  u32 by = 0;
  u64 cur = HB_LD(HB_LD(g, hb_go.g_m), hb_go.m_curg);
  if (cur) {
    struct hb_go_entry *c = hb_go_find(cur);
    if (c) by = hb_go_uid(c, cur, now);
  }
  hb_store_relaxed(&e->creator, by);
  hb_add_relaxed(&hb_table()->goroutines, 1u);
}

static void hb_go_exits(struct hb_go_entry *e, u64 now) {
  e->state = HB_GO_DEAD; /* before the goodbye: no sample follows it */
  atomic_signal_fence(memory_order_seq_cst);
  u32 uid = hb_load_relaxed(&e->uid);
  if (!uid) return;
  struct hb_rec_exit r;
  hb_go_rec(&r.rec, HB_REC_THREAD_EXIT, 0, uid, hb_go_seq(e), now);
  r.cpu_ns = hb_load_relaxed(&e->cpu_ns);
  r.alloc_objects = r.alloc_bytes = r.free_objects = 0;
  r.calls = r.calls_slow = 0;
  r.waits = hb_load_relaxed(&e->waits);
  r.wait_ns = hb_load_relaxed(&e->wait_ns);
  r.queue_ns = hb_load_relaxed(&e->queue_ns);
  hb_go_put(&r.rec, sizeof r, 0, 0);
  hb_store_relaxed(&e->uid, 0u);
}

/* casgstatus(gp, from, to) is about to run; g is the thread's current g, bp the caller's frame pointer. hook path */
__attribute__((used, visibility("hidden"))) void hb_go_on_status(u64 gp, u32 from, u32 to, u64 g, u64 bp) {
  if (!hb_load_relaxed(&hb_header()->recording)) return;
  u64 now = hb_go_now();
  if (!hb_heard(now)) return;
  struct hb_go_entry *e = hb_go_find(gp);
  if (!e) return;
  struct hb_go_table *t = hb_table();
  hb_add_relaxed(&t->events, 1u);
  int known = e->state != HB_GO_UNKNOWN && e->state != HB_GO_DEAD && hb_load_relaxed(&e->since_ns) >= hb_load_relaxed(&t->heard_ns);
  switch (from << 4 | to) {
  case HB_G_DEAD << 4 | HB_G_RUNNABLE:
    hb_go_created(e, g, now);
    e->state = HB_GO_RUNNABLE;
    return;
  case HB_G_DEAD << 4 | HB_G_WAITING:
    hb_go_created(e, g, now);
    e->state = HB_GO_WAITING;
    return;
  case HB_G_RUNNING << 4 | HB_G_WAITING:
    hb_store_relaxed(&e->since_ns, now);
    e->state = HB_GO_WAITING;
    return;
  case HB_G_WAITING << 4 | HB_G_RUNNABLE:
  case HB_G_WAITING << 4 | HB_G_RUNNING:
    if (!known || e->state != HB_GO_WAITING) {
      hb_store_relaxed(&e->since_ns, now);
      hb_store_relaxed(&e->ready_ns, now);
      e->recorded = 0;
      e->state = HB_GO_READY;
      return;
    }
    hb_go_readied(e, gp, g, bp, now);
    if (to == HB_G_RUNNING) hb_go_runs(e, gp, g, bp, now);
    return;
  case HB_G_RUNNABLE << 4 | HB_G_RUNNING:
    hb_go_runs(e, gp, g, bp, now);
    return;
  case HB_G_RUNNING << 4 | HB_G_RUNNABLE:
    hb_store_relaxed(&e->since_ns, now);
    hb_store_relaxed(&e->ready_ns, now);
    e->state = HB_GO_RUNNABLE;
    return;
  case HB_G_RUNNING << 4 | HB_G_SYSCALL:
    hb_store_relaxed(&e->since_ns, now);
    e->state = HB_GO_SYSCALL;
    return;
  case HB_G_SYSCALL << 4 | HB_G_RUNNING:
  case HB_G_SYSCALL << 4 | HB_G_RUNNABLE:
    if (known && e->state == HB_GO_SYSCALL) hb_go_called(e, gp, g, bp, now);
    hb_store_relaxed(&e->since_ns, now);
    hb_store_relaxed(&e->ready_ns, now);
    e->state = to == HB_G_RUNNING ? HB_GO_RUNNING : HB_GO_RUNNABLE;
    return;
  case HB_G_RUNNING << 4 | HB_G_DEAD:
    hb_go_exits(e, now);
    return;
  default:
    return;
  }
}

/* The process is about to exit: the waits that have not ended are written, of so many goroutines. Others run meanwhile: what has
 * changed while its stack was taken is left out. */
enum { HB_GO_QUIT_WAITS = 4096 };

__attribute__((used, visibility("hidden"))) void hb_go_on_quit(void) {
  if (!hb_load_relaxed(&hb_header()->recording)) return;
  u64 now = hb_go_now();
  if (!hb_heard(now)) return;
  struct hb_go_table *t = hb_table();
  struct hb_go_entry *all = (struct hb_go_entry *)(t + 1);
  u32 used = hb_load_relaxed(&t->used), written = 0;
  if (used > hb_go.entries) used = hb_go.entries;
  for (u32 i = 0; i < used; i++) {
    struct hb_go_entry *e = &all[hb_load_relaxed(&hb_go_used()[i]) & (hb_go.entries - 1)];
    u64 gp = hb_load_relaxed(&e->g), since = hb_load_relaxed(&e->since_ns);
    if (!gp || *(volatile uint8_t *)&e->state != HB_GO_WAITING || since < hb_load_relaxed(&t->heard_ns) || since > now) continue;
    u32 hook = hb_go_waits_in(gp);
    if (!hook || now - since < hb_go_threshold(hook)) continue;
    if (written == HB_GO_QUIT_WAITS) {
      hb_add_relaxed(&t->left, 1u);
      continue;
    }
    struct hb_go_stack s;
    hb_go_parked(&s, gp);
    u64 object = hb_go_waits_for_semaphore(hook) ? hb_go_semaphore(gp) : 0;
    if (*(volatile uint8_t *)&e->state != HB_GO_WAITING || hb_load_relaxed(&e->since_ns) != since) continue;
    hb_store_relaxed(&e->object, object);
    hb_store_relaxed(&e->waker, 0u);
    hb_go_interval_of(e, gp, &s, hook, since, now, HB_RECF_OPEN);
    written++;
  }
}

/* Where the runtime changes the state of system calls without casgstatus (Go 1.26): at the beginning of
 * reentersyscall and of exitsyscall, both on the goroutine itself. hook path */
__attribute__((used, visibility("hidden"))) void hb_go_on_enter(u64 g) {
  if (!hb_load_relaxed(&hb_header()->recording)) return;
  struct hb_go_entry *e = hb_go_find(g);
  if (!e) return;
  hb_store_relaxed(&e->since_ns, hb_go_now());
  e->state = HB_GO_SYSCALL;
}

__attribute__((used, visibility("hidden"))) void hb_go_on_exit(u64 g, u64 bp) {
  if (!hb_load_relaxed(&hb_header()->recording)) return;
  u64 now = hb_go_now();
  if (!hb_heard(now)) return;
  struct hb_go_entry *e = hb_go_find(g);
  if (!e) return;
  if (e->state == HB_GO_SYSCALL && hb_load_relaxed(&e->since_ns) >= hb_load_relaxed(&hb_table()->heard_ns))
    hb_go_called(e, g, g, bp, now);
  hb_store_relaxed(&e->since_ns, now);
  e->state = HB_GO_RUNNING;
}

#endif
