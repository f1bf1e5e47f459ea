/* lend.h: threads that are born with every signal blocked lend us ours.
 *
 * Whoever starts threads that are not to run the program's handlers blocks all signals around pthread_create (liblzma, jemalloc's and glib's
 * helpers, every second thread pool). Such threads do the work, and could be sampled at their hooks only: 99.6 % of what `xz -T2` does had no place. What the
 * program means is that none of *its* handlers is to run there, and ours runs none of them. So the kernel is told that the thread has our
 * signal open, and the program that it has it blocked:
 *
 * - Only threads born that way, of a program that has no handler for the signal. A thread that blocks everything later does so around something short and
 *   delicate.
 * - Masks that the program reads have the signal in them, and those that it sets go without, until it opens the signal itself or no longer blocks
 *   all (sampler/mask.h).
 * - One of the program's own that arrives meanwhile is put back where it would wait: the handler blocks the signal for good and sends the
 *   same siginfo again. From then on nobody in that process lends.
 * - What the thread forks, execs or spawns inherits the mask that the program knows (hooks/exec.h).
 * - Its children by pthread_create lend as well, or have it blocked.
 *
 * One that is sent to such a thread, rather than to its process, while ours is on the way there is lost, for standard signals do not queue. Not seen: masks that the program reads by raw system calls, in /proc or in a ucontext; what vfork children and system() start has the signal open,
 * whose default action is to be ignored. Real-time signals, whose default action is to kill, are not borrowed. */
#ifndef HB_LEND_H
#define HB_LEND_H

#include "agent/session.h"
#include "agent/thread.h"
#include "sampler/action.h"
#include "syscallproxy/proxy.h"

enum { HB_SIG_BLOCK, HB_SIG_UNBLOCK, HB_SIG_SETMASK };

/* HUP INT QUIT USR1 USR2 ALRM TERM CHLD: who blocks these and ours blocks everything, but for what faults raise. */
#define HB_EVERYTHING (1ull << 0 | 1ull << 1 | 1ull << 2 | 1ull << 9 | 1ull << 11 | 1ull << 13 | 1ull << 14 | 1ull << 16)

HB_INLINE int hb_blocks_all(uint64_t mask) { return (mask & HB_EVERYTHING) == HB_EVERYTHING && mask & hb_signal_bit(); }

static long hb_mask_signal(int how) {
  uint64_t ours = hb_signal_bit();
  return hb_sys4(HB_SYS_rt_sigprocmask, how, &ours, NULL, 8);
}

/* A new thread begins, which its creator believes to have our signal blocked if it had lent it. It has joined (t->slot) as one that nobody signals, or could
 * not join. init */
static void hb_lend_at_birth(struct hb_tls *t, int creator_lent) {
  uint64_t mask = 0;
  if (HB_LEAVES) return; /* no other thread could give the mask back */
  t->flags &= ~(uint32_t)HB_TLS_LENT;
  if (!creator_lent && (!t->slot || !(t->flags & HB_TLS_BLOCKED))) return;
  if (hb.confined || hb_is_err(hb_sys4(HB_SYS_rt_sigprocmask, HB_SIG_BLOCK, NULL, &mask, 8))) return;
  if (creator_lent) mask |= hb_signal_bit();
  if (t->slot && hb.signal < 32 && hb_blocks_all(mask) && !hb_load_relaxed(&hb.own_use) && !hb_handles(hb_app_action()) && !hb_load_relaxed(&hb.given_up) &&
      !(hb_load_relaxed(&hb.slot->flags) & (HB_PROCF_SYNC_ONLY | HB_PROCF_HANDLER_CHAINED))) {
    hb_store_relaxed(&hb.lent, 1u);
    t->flags |= HB_TLS_LENT; /* before it is open: one of the program's own may have waited for that, and is put back */
    hb_rest_set(t, HB_TLS_BLOCKED, 0);
    if (hb_is_err(hb_mask_signal(HB_SIG_UNBLOCK))) {
      t->flags &= ~(uint32_t)HB_TLS_LENT;
      hb_rest_set(t, HB_TLS_BLOCKED, 1);
    }
  } else if (creator_lent) {
    hb_mask_signal(HB_SIG_BLOCK);
    hb_rest_set(t, HB_TLS_BLOCKED, 1);
  }
}

/* Is this the thread that lent it, and not a vfork child on its memory? */
HB_INLINE int hb_lent(const struct hb_tls *t) {
  return HB_UNLIKELY(t->flags & HB_TLS_LENT) && t->slot && (uint32_t)hb_sys1(HB_SYS_gettid, 0) == t->tid;
}

/* The kernel is told what the program believes. hook path */
static HB_NOINLINE void hb_lend_end(struct hb_tls *t) {
  struct hb_block b;
  if (!hb_lent(t) || hb.confined) return;
  hb_block_enter(t, t->slot, &b, HB_FRAME); /* what is in flight is taken */
  if (!b.passive && !hb_is_err(hb_mask_signal(HB_SIG_BLOCK))) {
    t->flags &= ~(uint32_t)HB_TLS_LENT;
    hb_rest_set(t, HB_TLS_BLOCKED, 1);
  }
  hb_block_leave(t, t->slot, &b);
}

/* In a fork child. hook path */
static void hb_lent_forked(const struct hb_tls *t) {
  if (t->flags & HB_TLS_LENT && !hb.confined) hb_mask_signal(HB_SIG_BLOCK);
}

/* A signal that is not ours reached a thread that lent it. Returns whether it waits again where it should. signal-safe; all signals are masked */
static int hb_lent_put_back(struct hb_tls *t, int sig, const struct hb_siginfo *info, void *uc) {
  struct hb_timespec wait = {0, 5000000};
  uint64_t ours = hb_signal_bit();
  if (!(t->flags & HB_TLS_LENT) || !t->slot || hb.confined) return 0;
  hb_store_relaxed(&hb.own_use, 1u);
  for (uint32_t tries = 0, limit = hb_consume_tries(), x = HB_RUNNING; !hb_cas_seq(&t->slot->state, &x, (uint32_t)HB_MASKED) && x != HB_BLOCKED && x != HB_MASKED; x = HB_RUNNING) {
    /* One of ours has been announced: it must not wait in the other's place. */
    union { struct hb_siginfo info; char room[128]; } other;
    if (x != HB_SIGNALLED || tries > limit + HB_STATE_TRIES) return 0;
    if (tries >= limit) wait.nsec = 0;
    if (hb_sys4(HB_SYS_rt_sigtimedwait, &ours, &other, &wait, 8) == sig) {
      if (hb_is_ours(&other.info)) hb_store_release(&t->slot->state, (uint32_t)HB_RUNNING);
      else hb_send_again(t, sig, &other.info);
    }
    if (++tries >= limit) { /* announced, never sent */
      hb_store_release(&t->slot->state, (uint32_t)HB_RUNNING);
      hb_never_sent();
    }
  }
  hb_rest_set(t, HB_TLS_BLOCKED, 1);
  t->flags &= ~(uint32_t)HB_TLS_LENT;
  *hb_ucontext_mask(uc) |= ours;
  return !hb_is_err(hb_send_again(t, sig, info));
}

/* ---- masks that the program reads and sets ---- */

/* A thread that has lent the signal is about to look at its mask or to change it. Whether it still has: whoever sets masks by raw system calls, as Go's runtime does
 * at the beginning of its threads, has told the kernel what it wants, and it is so. hook path */
static int hb_lent_still(struct hb_tls *t, uint64_t *mask) {
  *mask = HB_EVERYTHING;
  if (!hb.confined) hb_sys4(HB_SYS_rt_sigprocmask, HB_SIG_BLOCK, NULL, mask, 8);
  if (hb_blocks_all(*mask | hb_signal_bit())) return 1;
  t->flags &= ~(uint32_t)HB_TLS_LENT;
  return 0;
}

/* What the kernel, for which the thread has `mask`, is given instead of set; NULL where the lending ends before the change. hook path */
static const uint64_t *hb_lent_set(struct hb_tls *t, uint64_t mask, int how, const uint64_t *set, uint64_t copy[16]) {
  if (!set || how < HB_SIG_BLOCK || how > HB_SIG_SETMASK) return set;
  int named = (set[0] & hb_signal_bit()) != 0;
  if (how == HB_SIG_UNBLOCK ? named : how == HB_SIG_SETMASK && !named) {
    t->flags &= ~(uint32_t)HB_TLS_LENT; /* it is open from now on, as it was */
    return set;
  }
  uint64_t to = how == HB_SIG_BLOCK ? mask | set[0] : how == HB_SIG_UNBLOCK ? mask & ~set[0] : set[0];
  if (!hb_blocks_all(to | hb_signal_bit())) return NULL;
  if (!named) return set;
  for (int i = 0; i < 16; i++) copy[i] = 0;
  copy[0] = set[0] & ~hb_signal_bit();
  return copy;
}

#endif
