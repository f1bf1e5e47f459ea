/* jump.h: longjmp and kin, as handlers use them to get out of a blocking call. The call's wrapper never returns, so
 * the call is ended and recorded here, while its frames are whole, if the jump leaves it: the stack pointer that it
 * goes to lies above the call's frame. Where that cannot be read the call is recorded only, and the next proxied call
 * tells a nested call from a stale one. */
#ifndef HB_JUMP_H
#define HB_JUMP_H

#include "hooks/wait.h"

enum { HB_JUMP_OPAQUE, HB_JUMP_PLAIN, HB_JUMP_HIDDEN };

static HB_NOINLINE uint32_t hb_jump_kind(const uint64_t *words, uintptr_t frame) {
  if (frame - words[HB_JUMP_SP] < 4096) return HB_JUMP_PLAIN;
  if (frame - hb_jump_demangle(words[HB_JUMP_SP]) < 4096) return HB_JUMP_HIDDEN;
  return HB_JUMP_OPAQUE;
}

/* How does this C library keep the stack pointer? Asked of a jmp_buf of our own, to which nobody jumps. init only */
static HB_NOINLINE void hb_jump_check(void) {
  uint64_t words[64] = {0}; /* jmp_buf has 25 words at most */
  if (!hb_real._setjmp) return;
  ((int (*)(uint64_t *))hb_real._setjmp)(words);
  hb.jump_kind = hb_jump_kind(words, (uintptr_t)HB_FRAME);
}

/* 0: not known. hook path */
static uintptr_t hb_jump_to(const uint64_t *words) {
  if (hb.jump_kind == HB_JUMP_OPAQUE) return 0;
  return hb.jump_kind == HB_JUMP_PLAIN ? words[HB_JUMP_SP] : hb_jump_demangle(words[HB_JUMP_SP]);
}

static HB_NOINLINE void hb_jumping(struct hb_tls *t, const void *env) {
  if (hb_load_relaxed(&t->slot->state) != HB_BLOCKED || !t->proxy_depth) return;
  uintptr_t to = hb_jump_to(env);
  int known = to && hb_stack_end(t, to) && hb_stack_end(t, t->outer.sp);
  if (!known) hb_emit_unwound(t, t->slot);
  else if (to > t->outer.sp && (uint32_t)hb_sys1(HB_SYS_gettid, 0) == t->tid) hb_block_abandoned(t, t->slot);
}

#define HB_JUMP(symbol)                                                            \
  HB_EXPORT void hb_jump_##symbol(void *env, int value) __asm__(#symbol);          \
  HB_EXPORT void hb_jump_##symbol(void *env, int value) {                          \
    typedef void (*fn)(void *, int);                                               \
    fn real = HB_REAL(fn, symbol);                                                 \
    struct hb_tls *t = hb_self();                                                  \
    if (HB_UNLIKELY(t->slot && hb_load_relaxed(&hb.wiped->alive))) hb_jumping(t, env);  \
    real(env, value);                                                              \
  }
HB_JUMP(longjmp)
HB_JUMP(_longjmp)
HB_JUMP(siglongjmp)
HB_JUMP(__longjmp_chk)

#endif
