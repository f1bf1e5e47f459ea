/* sample.h: CPU samples: a signal of the recorder's lands on a thread that used CPU time.
 *
 * The signal is SIGWINCH, which is ignored by default: it harms no process that is met before its handler is in place, or
 * after an exec. Those that do not come from the recorder go on to the runtime's own handler (hook.h, hb_go_signal).
 *
 * A sample belongs to the goroutine that its thread runs, or to the thread slot that stands for the runtime when it
 * runs none. Its weight is what the thread used since its last signal. */
#ifndef HB_GO_SAMPLE_H
#define HB_GO_SAMPLE_H

#include "goruntime/entry.h"
#include "goruntime/stack.h"

/* Places in the kernel's ucontext_t and siginfo_t, in 8-byte words. */
enum { HB_UC_RBP = 15, HB_UC_RSP = 20, HB_UC_RIP = 21, HB_SI_VALUE = 3 };

static inline int hb_go_on_stack(u64 g, u64 sp) {
  return sp >= HB_LD(g, hb_go.g_stack_lo) && sp < HB_LD(g, hb_go.g_stack_hi);
}

static void hb_go_interrupted(struct hb_go_stack *s, u64 g, u64 cur, const u64 *uc) {
  u64 ip = uc[HB_UC_RIP], sp = uc[HB_UC_RSP], bp = uc[HB_UC_RBP];
  s->n = s->cut = 0;
  if (ip >= hb_go.image && ip < hb_go.image_end) { /* in one of our hooks: no frame pointer leads out of it */
    hb_go_push(s, ip, HB_PC_EXACT);
    s->cut = 1;
    return;
  }
  if (ip == hb_go.preempt && hb_go_on_stack(g, sp)) ip = HB_LD(sp, 0); /* the runtime's own signal came first */
  hb_go_push(s, ip, HB_PC_EXACT);
  hb_go_walk(s, bp, HB_LD(g, hb_go.g_stack_lo), HB_LD(g, hb_go.g_stack_hi));
  if (!cur || cur == g) return;
  /* on the thread's own stack, on behalf of a goroutine: that goes on below */
  hb_go_push(s, HB_LD(cur, hb_go.g_pc), HB_PC_FP);
  hb_go_walk(s, HB_LD(cur, hb_go.g_bp), HB_LD(cur, hb_go.g_stack_lo), HB_LD(cur, hb_go.g_stack_hi));
}

/* signal-safe; every signal is blocked */
__attribute__((used, visibility("hidden"))) void hb_go_on_signal(int sig, const u64 *info, const u64 *uc) {
  (void)sig;
  struct hb_header *h = hb_header();
  if (!hb_load_relaxed(&h->recording)) return;
  u64 now = hb_go_now();
  if (!hb_heard(now)) return;
  u64 g;
  __asm__ volatile("mov %%fs:-8, %0" : "=r"(g));
  hb_add_relaxed(&hb_table()->samples, 1u);
  if (!g) {
    hb_add_relaxed(&hb_table()->strays, 1u);
    return;
  }
  u64 weight = (info[HB_SI_VALUE] >> 32) * 1000, cur = HB_LD(HB_LD(g, hb_go.g_m), hb_go.m_curg);
  struct hb_go_stack s;
  struct hb_rec_sample r;
  hb_go_interrupted(&s, g, cur, uc);
  struct hb_go_entry *e = cur ? hb_go_find(cur) : 0;
  if (e && e->state != HB_GO_DEAD) {
    u32 uid = hb_go_uid(e, cur, now);
    hb_go_rec(&r.rec, HB_REC_SAMPLE, 0, uid, hb_go_seq(e), now);
    r.cpu_ns = hb_add_relaxed(&e->cpu_ns, weight) + weight;
  } else {
    struct hb_thread *t = (struct hb_thread *)(hb_go.segment + h->threads_off) + hb_go.thread_slot;
    hb_go_rec(&r.rec, HB_REC_SAMPLE, 0, hb_go.uid, hb_add_relaxed(&t->seq, 1u) + 1, now);
    r.cpu_ns = hb_add_relaxed(&t->cpu_ns, weight) + weight;
    hb_add_relaxed(&t->samples, 1u);
  }
  r.kind = HB_SAMPLE_PERIODIC;
  r.worth = 0;
  r.weight_ns = weight;
  r.object = 0;
  r.stack = hb_go_stack_head(&s);
  hb_go_put(&r.rec, sizeof r, s.pcs, s.n);
}

#endif
