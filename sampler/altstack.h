/* altstack.h: alternate signal stacks without room for our handler.
 *
 * Our handler runs on the thread's alternate stack if it has one (SA_ONSTACK), so that a coroutine's small stack, or
 * one that has just overflowed, is not needed. Programs make such stacks as small as the kernel lets them, for
 * handlers that need next to nothing: there the kernel would kill the program for the lack of room for its frame, or
 * our handler would write below the stack. So a thread whose alternate stack has less than hb.signal_stack bytes is
 * never signalled; it samples itself at its hooks. A thread's stack from before it was recorded is asked of the kernel
 * when it joins (hb_alternate_small). Not seen: sigaltstack(2) made without libc's functions. */
#ifndef HB_ALTSTACK_H
#define HB_ALTSTACK_H

#include "agent/real.h"
#include "sampler/handler.h"

struct hb_stack_t { /* the kernel's stack_t, and libc's */
  void *lo;
  int flags;
  size_t bytes;
};

/* What real does, with the arguments that it was called with. hook path */
static HB_NOINLINE int hb_change_stack(int (*real)(const void *, void *), const struct hb_stack_t *ss, void *old) {
  struct hb_tls *t = hb_self();
  if (!ss || !hb_thread_ready(t) || (uint32_t)hb_sys1(HB_SYS_gettid, 0) != t->tid) return real(ss, old);
  int small = !(ss->flags & 2 /* SS_DISABLE */) && ss->bytes < hb.signal_stack;
  if (small == ((t->flags & HB_TLS_SMALL) != 0)) return real(ss, old);
  struct hb_block b;
  hb_block_enter(t, t->slot, &b, HB_FRAME); /* what is in flight is taken */
  int r = real(ss, old);
  if (r == 0) {
    hb_rest_set(t, HB_TLS_SMALL, small);
    if (small) HB_COUNT(small_stacks);
  }
  hb_block_leave(t, t->slot, &b);
  return r;
}

HB_EXPORT int sigaltstack(const struct hb_stack_t *ss, void *old) {
  typedef int (*fn)(const void *, void *);
  fn real = HB_REAL(fn, sigaltstack);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  return hb_change_stack(real, ss, old);
}

#endif
