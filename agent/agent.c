//go:build ignore

/* agent.c: hbtrace inside the target: the one translation unit of the preloaded object.
 *
 * The includes are the data path, bottom up:
 *   agent/os.h arch_*.h elf.h state.h real.h   what we stand on
 *   concurrentring/producer.h                  records into the ring
 *   unwind/walk.h table.h verify.h stack.h delta.h   stacks, and what changed in them
 *   agent/emit.h thread.h                      samples, intervals; threads and processes
 *   syscallproxy/proxy.h sampler/handler.h     the signal, and the calls it must not disturb
 *   hooks/alloc.h wait.h lock.h cond.h call.h life.h   the wrappers
 *   agent/attach.h                             how it starts; attached.h where it was not preloaded
 *
 * The rules of a guest, kept by all of it:
 *  - no thread, no open descriptor, nothing printed, nothing allocated through the target's allocator;
 *  - errno, signal mask and results are the target's; a failure of ours is counted in the segment and the call
 *    goes through as if we were not there;
 *  - hooks work before the constructor ran (they pass through), in fork and vfork children, in signal handlers,
 *    on any stack. */

#define _GNU_SOURCE /* struct dl_phdr_info */

#ifdef HB_ATTACHED
#include "agent/attached.h"
#else
#include "agent/attach.h"

__attribute__((constructor(101))) static void hb_constructor(void) {
  hb_resolve_all();
  const char *session = hb_env(HB_ENV_SESSION);
  const char *added = session ? NULL : hb_env(HB_ENV_ADDED);
  if (!session && !added) return;
  struct hb_auxv a = hb_read_auxv();
  struct hb_timespec ts = {0, 0};
  hb_vdso_base = a.vdso;
  hb.signal_stack = a.signal_frame + HB_HANDLER_BYTES;
  int (*clock)(int, struct hb_timespec *) = (int (*)(int, struct hb_timespec *))hb_vdso_find(a.vdso, HB_VDSO_CLOCK);
  hb_counter_check();
  if (clock && !hb_counter_off && clock(HB_CLOCK_MONOTONIC, &ts) == 0 && ts.sec > 0) hb_vdso_clock = clock;
  hb_main_stack(a.random);
  hb_given_remember(added ? added : session);
  hb_attach(session ? session : hb_given.session + sizeof HB_ENV_ADDED - 1);
  if (hb_env(HB_ENV_ADDED)) hb_environ_restore(a.first); /* now that the recorder sees us inside: it reads our environment */
  hb_end_prepare();
}

/* exit(3) calls this and then the kernel, without a wrapper of ours in between. */
__attribute__((destructor)) static void hb_destructor(void) {
  struct hb_tls *t = hb_self();
  if (!t->slot || !hb_load_relaxed(&hb.on) || !hb_load_relaxed(&hb.wiped->alive)) return;
  if (hb_load_relaxed(&hb.slot->modules_gen)) hb_modules_announce(t); /* what dlopen brought and nobody read yet */
  hb_thread_leave(t, 1);
}
#endif
