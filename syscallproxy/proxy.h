/* proxy.h: no sampling signal ever reaches a thread inside a call that can sleep, at no system call's cost.
 *
 * The state word (segment/layout.h, hb_thread.state):
 *
 *     RUNNING --CAS, sampler--> SIGNALLED --handler, or the slow path below--> RUNNING
 *     RUNNING --CAS, thread---> BLOCKED ----------- store, thread -----------> RUNNING
 *     RUNNING --CAS, thread---> EXITED
 *
 * While the target has the signal blocked the thread rests in MASKED, not RUNNING, and is never signalled: see
 * segment/layout.h and sampler/mask.h.
 *
 * The sampler signals only after it has won RUNNING -> SIGNALLED, so a thread that is BLOCKED is never signalled.
 * A thread that finds SIGNALLED on its way into a call has a signal on its way to it and takes it here, before
 * the call. The rules, each of which was once broken and hung or leaked an EINTR:
 *
 * 1. The slow path blocks *all* signals with the raw system call, then waits for ours with rt_sigtimedwait. It
 *    works when the target has everything masked; blocking only our signal hangs, because a handler of the target
 *    may run in between and enter a proxy itself.
 * 2. The handler's sa_mask is full (sampler/handler.h), or a handler of the target stacks on ours before it ran.
 * 3. BLOCKED found on entry is *nested* when our frame lies below `outer`, or on the alternate stack (a handler of the target runs
 *    during the outer call; hb_nested): leave then does nothing. Otherwise it is *stale*: a siglongjmp left the outer call. It
 *    is published before the CAS and restored on leave.
 * 4. When the slot belongs to another thread (a vfork child on its parent's memory), pass by.
 * 5. A fork child takes a slot of its own before anything else (agent/thread.h).
 * 6. Exit is the same entry with EXITED; after it a null slot passes straight through.
 * 7. If sending failed the sampler takes SIGNALLED back. If the sampler died between its CAS and the signal, the wait
 *    is capped and our signal stays masked during the call, in case it comes after all.
 * 8. A siglongjmp out of a call ends it where it is made, if it can be told where it goes (hooks/jump.h). Otherwise, and
 *    after setcontext, a deeper call looks nested until a shallower one is made: the thread goes unsampled until then.
 * 9. The state word lies where other processes write. What it says may be anything at any time: every loop over it ends,
 *    and how often an announcement is believed is limited.
 * 10. What is taken while ours is waited for is ours by its siginfo. The target's own goes on to where it was to go.
 * 11. Before it is waited for, the kernel is asked whether our handler is still there: the target may have replaced it by
 *    means that we do not see. Then nothing is waited for, now and for good. */
#ifndef HB_PROXY_H
#define HB_PROXY_H

#include "agent/state.h"
#include "unwind/stack.h"

#define HB_CONSUME_TRIES 40 /* of 5 ms each: how long a signal that was announced is waited for */
#define HB_STATE_TRIES 64 /* changes of the state word that one entry follows: sampler and thread make three between them */

/* A proxied call under way; lives in the wrapper's frame. */
struct hb_block {
  struct hb_outer prev_outer;
  uint32_t passive; /* nested or bypassed: leave does not touch the state */
  uint32_t unmask;  /* this signal was masked for the call and is to be unmasked; 0: none */
  uint64_t waited;  /* stamps for which it waited for a signal of ours that was on its way: to the program a part of the call */
};

static void hb_emit_unwound(struct hb_tls *t, struct hb_thread *s);
static void hb_take_sample(struct hb_tls *t, uint32_t ask, uint32_t hook, const void *uc, const void *frame,
                           uint32_t rec_flags, uint64_t cpu);

static uint64_t hb_signal_bit(void) { return 1ull << (hb.signal - 1); }

/* The thread's outermost call does not wait any more for what it was counted at. hook path */
static void hb_waiting_end(struct hb_tls *t) {
  uint32_t at = t->waiting;
  t->waiting = 0; /* first: a handler may jump out from in between */
  if (!at) return;
  uint32_t woken = hb_load_relaxed(&hb.wiped->woken[at - 1]);
  for (int i = 0; woken && i < HB_STATE_TRIES && !hb_cas_seq(&hb.wiped->woken[at - 1], &woken, woken - 1); i++) {}
  hb_sub_relaxed(&hb.wiped->waiters[at - 1], 1u);
}

/* An announced signal that never comes costs its thread time. A sampler that dies causes one; whoever writes to the segment
 * could cause one a call. So each such wait of a process is half as long as the one before: 0.4 s in all. signal-safe */
HB_INLINE uint32_t hb_consume_tries(void) {
  uint32_t unsent = hb_load_relaxed(&hb.unsent);
  return unsent < 6 ? HB_CONSUME_TRIES >> unsent : 0;
}

static void hb_never_sent(void) {
  if (hb_load_relaxed(&hb.unsent) < 6) hb_add_relaxed(&hb.unsent, 1u);
  HB_COUNT(signals_stray);
}

#define HB_SI_QUEUE (-1)
#define HB_SI_TKILL (-6)

/* By its siginfo. signal-safe */
static int hb_is_ours(const struct hb_siginfo *info) {
  return info->code == HB_SI_QUEUE && ((uint32_t)info->value & ~0xffu) == hb.cookie;
}

/* As it came: to the thread or to the process. The kernel lets nobody but the process's first thread say that kill() sent one: si_pid is the process itself
 * then, whoever it was. signal-safe */
static long hb_send_again(const struct hb_tls *t, int sig, const struct hb_siginfo *info) {
  uint32_t pid = (uint32_t)hb_sys1(HB_SYS_getpid, 0);
  if (info->code == HB_SI_TKILL) return hb_sys4(HB_SYS_rt_tgsigqueueinfo, pid, t->tid, sig, info);
  long r = hb_sys3(HB_SYS_rt_sigqueueinfo, pid, sig, info);
  return hb_is_err(r) ? hb_sys2(HB_SYS_kill, pid, sig) : r;
}

/* The kernel had no room for the siginfo (RLIMIT_SIGPENDING): whether it is ours then is the slot's to say. */
HB_INLINE int hb_is_nobodys(const struct hb_siginfo *info) { return info->code == 0 && info->pid == 0; }

static void hb_on_signal(int sig, struct hb_siginfo *info, void *uc);

/* Our handler is gone: the target has installed another one by means that we do not see. Looked at when a signal is waited for
 * that would not come, and remembered for good. hook path */
static int hb_handler_gone(void) {
  struct hb_sigaction now;
  if (hb_load_relaxed(&hb.given_up)) return 1;
  if (hb_is_err(hb_sys4(HB_SYS_rt_sigaction, hb.signal, NULL, &now, 8)) || now.handler == (void *)hb_on_signal) return 0;
  hb_store_relaxed(&hb.given_up, 1u);
  atomic_fetch_or_explicit(&hb.slot->flags, HB_PROCF_SYNC_ONLY, memory_order_relaxed);
  return 1;
}

/* BLOCKED was found on entry, by a frame at sp: does a handler run during the outer call? Otherwise that was left by a jump. On one
 * stack the handler's frames lie below the call's. One that has a stack of its own runs on the alternate one, and where else,
 * if the call does not, a jump into a coroutine is as likely: then the state is better left alone. hook path */
static int hb_nested(const struct hb_tls *t, uintptr_t sp) {
  uintptr_t outer = t->outer.sp;
  int here = hb_stack_end(t, sp) != 0, there = hb_stack_end(t, outer) != 0;
  if (here && there) return sp < outer;
  struct hb_range alternate = hb_stack_alternate();
  int on = hb_in(alternate, sp), was = hb_in(alternate, outer);
  if (on != was) return on;
  return here ? 0 : there ? 1 : sp < outer;
}

/* Signals of the target's own that came while ours was waited for, at most one sent to the thread and one to the process, go on to
 * where they would be without us. blocked: the target has the signal blocked. All signals are masked. hook path */
static void hb_foreign_back(const struct hb_tls *t, const union hb_siginfo_whole *held, uint32_t n, int blocked);

/* The entry that did not find RUNNING. `to` is HB_BLOCKED or HB_EXITED. hook path */
static HB_NOINLINE void hb_block_slow(struct hb_tls *t, struct hb_thread *s, struct hb_outer at, uint32_t to,
                                      struct hb_block *b, const void *frame) {
  uint64_t all = ~0ull, old = 0, ours = hb_signal_bit();
  uint32_t tries = 0, limit = hb_consume_tries(), x = hb_load_acquire(&s->state), looked = 0, held = 0;
  union hb_siginfo_whole other[2];
  b->passive = 0;
  if (x == HB_MASKED && hb_cas_seq(&s->state, &x, to)) { /* no signal can be in flight: nothing else to wait for */
    t->outer = at;
    return;
  }
  uint64_t from = hb_stamp();
  if (!hb_calls_begin()) { /* the target confines itself: nobody sends a signal any more */
    b->passive = 1;
    return;
  }
  hb_sys4(HB_SYS_rt_sigprocmask, 0 /* SIG_BLOCK */, &all, &old, 8);
  for (uint32_t turns = 0;; turns++) {
    x = t->rest;
    if (hb_cas_seq(&s->state, &x, to)) break;
    if (turns > limit + HB_STATE_TRIES) { /* somebody else writes here: go on without the handshake, and without the signal */
      b->passive = 1;
      b->unmask = old & ours ? 0 : hb.signal;
      hb_never_sent();
      break;
    }
    if (x == HB_BLOCKED) {
      if (hb_nested(t, at.sp)) {
        b->passive = 1;
        break;
      }
      t->proxy_depth = 1; /* only our own entry is left of what the jump abandoned */
      hb_waiting_end(t);
      hb_store_release(&s->state, t->rest);
      continue;
    }
    if (x == HB_MASKED || x == HB_RUNNING) { /* rest was stale */
      hb_store_release(&s->state, t->rest);
      continue;
    }
    if (x == HB_EXITED || (uint32_t)hb_sys1(HB_SYS_gettid, 0) != t->tid) {
      b->passive = 1;
      break;
    }
    if (x != HB_SIGNALLED) { /* no state at all: put right */
      hb_store_release(&s->state, t->rest);
      continue;
    }
    if (!looked++ && hb_handler_gone() && hb_cas_seq(&s->state, &x, to)) break;
    /* A foreign one may have taken the place of ours: of each standard signal one waits. */
    struct hb_timespec wait = {0, tries < limit && !held ? 5000000 : 0};
    struct hb_siginfo *info = &other[held & 1].info;
    long got = hb_sys4(HB_SYS_rt_sigtimedwait, &ours, info, &wait, 8);
    int is_ours = got == (long)hb.signal && (hb_is_ours(info) || hb_is_nobodys(info));
    if (got == (long)hb.signal && !is_ours && held < 2) {
      held++;
    } else if (is_ours && hb_load_acquire(&s->state) == HB_SIGNALLED) {
      hb_take_sample(t, hb_load_relaxed(&s->ask), 0, NULL, frame, HB_RECF_CONSUMED, 0);
      hb_store_release(&s->state, (uint32_t)HB_RUNNING);
    } else if (++tries >= limit || held) { /* announced, never sent: whoever announced it is gone or starved */
      x = HB_SIGNALLED;
      if (hb_cas_seq(&s->state, &x, to)) {
        b->unmask = old & ours || held ? 0 : hb.signal;
        if (!held) hb_never_sent();
        break;
      }
    }
  }
  if (!b->passive) t->outer = at;
  if (HB_UNLIKELY(held)) hb_foreign_back(t, other, held, (old & ours) != 0);
  if (b->unmask) old |= ours;
  hb_raw6(HB_SYS_rt_sigprocmask, 2 /* SIG_SETMASK */, (long)&old, 0, 8, 0, 0);
  hb_calls_end();
  b->waited = hb_stamp() - from;
  t->left_stamp += b->waited; /* the run of work before the call lasted no longer for that */
}

/* hook path; `frame` is the wrapper's frame address */
HB_INLINE void hb_block_enter(struct hb_tls *t, struct hb_thread *s, struct hb_block *b, const void *frame) {
  struct hb_outer at = hb_outer_at(frame);
  uint32_t x = HB_RUNNING;
  b->prev_outer = t->outer;
  b->passive = 0;
  b->unmask = 0;
  b->waited = 0;
  t->proxy_depth++;
  t->outer = at;
  hb_compiler_barrier(); /* a handler between here and the CAS must see it */
  if (HB_LIKELY(hb_cas_seq(&s->state, &x, (uint32_t)HB_BLOCKED))) return;
  t->outer = b->prev_outer;
  hb_block_slow(t, s, at, HB_BLOCKED, b, frame);
}

/* Keeps errno: only plain stores and, once in a blue moon, a raw system call. hook path */
HB_INLINE void hb_block_leave(struct hb_tls *t, struct hb_thread *s, struct hb_block *b) {
  if (HB_LIKELY(!b->passive)) hb_store_release(&s->state, t->rest);
  t->outer = b->prev_outer;
  t->proxy_depth--;
  if (HB_UNLIKELY(b->unmask)) {
    uint64_t ours = 1ull << ((b->unmask - 1) & 63);
    hb_sys4(HB_SYS_rt_sigprocmask, 1 /* SIG_UNBLOCK */, &ours, NULL, 8);
  }
}

/* The outermost proxied call has been left, and its wrapper's own leave will not run: record it, and give back what it
 * published. hook path */
static void hb_block_abandoned(struct hb_tls *t, struct hb_thread *s) {
  hb_emit_unwound(t, s);
  t->proxy_depth = 0;
  t->outer.sp = 0;
  hb_waiting_end(t);
  hb_store_relaxed(&s->in_hook, 0u);
  if (hb_load_relaxed(&s->state) == HB_BLOCKED) hb_store_release(&s->state, t->rest);
}

/* An exception or a cancellation crosses one of our frames. hook path */
static void hb_block_unwound(void) {
  struct hb_tls *t = hb_self();
  struct hb_thread *s = t->slot;
  if (!s || t->proxy_depth == 0) return;
  if (t->proxy_depth == 1) hb_block_abandoned(t, s);
  else t->proxy_depth--;
}

/* The personality of every wrapper that names HB_UNWIND_SCOPE (Itanium C++ ABI, exception handling, 1.6.2):
 * continue in both phases; in the clean-up phase (actions & 2) undo. */
__attribute__((used, visibility("hidden"))) int hb_personality(int version, int actions, uint64_t cls, void *exception,
                                                                 void *context) {
  (void)version, (void)cls, (void)exception, (void)context;
  if (actions & 2) hb_block_unwound();
  return 8; /* _URC_CONTINUE_UNWIND */
}

#endif
