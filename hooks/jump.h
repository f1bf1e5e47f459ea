/* jump.h: longjmp and kin, as handlers use them to get out of a blocking call. The call's wrapper never returns, so the
 * call is recorded here, as left unwound, while its frames are whole. Nothing else changes: where the jump goes is
 * not known, so the state word is left to the next proxied call, which tells a nested call from a stale one. */
#ifndef HB_JUMP_H
#define HB_JUMP_H

#include "hooks/wait.h"

static HB_NOINLINE void hb_jumping(struct hb_tls *t) {
  if (hb_load_relaxed(&t->slot->state) == HB_BLOCKED && t->proxy_depth) hb_emit_unwound(t, t->slot);
}

#define HB_JUMP(symbol)                                                            \
  HB_EXPORT void hb_jump_##symbol(void *env, int value) __asm__(#symbol);          \
  HB_EXPORT void hb_jump_##symbol(void *env, int value) {                          \
    typedef void (*fn)(void *, int);                                               \
    fn real = HB_REAL(fn, symbol);                                                 \
    struct hb_tls *t = hb_self();                                                  \
    if (HB_UNLIKELY(t->slot && hb_load_relaxed(&hb.wiped->alive))) hb_jumping(t);  \
    real(env, value);                                                              \
  }
HB_JUMP(longjmp)
HB_JUMP(_longjmp)
HB_JUMP(siglongjmp)
HB_JUMP(__longjmp_chk)

#endif
