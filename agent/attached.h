/* attached.h: how an agent begins and ends that an attacher has mapped into a running program (package attach, HB_ATTACHED).
 *
 * The attacher writes text, data, relocations and the addresses of the real functions from outside, while the program runs, and
 * struct hb_join last. Then calls of the program come in through the thunks; the first one takes the session from a socket, without
 * waiting, and makes the process a recorded one. Nothing here asks the loader: a thread of the program may hold its lock and
 * wait for what the calling thread holds.
 *
 * hb_leave is called by the stub of the attacher, on a thread that it has interrupted: the stub saves all registers. */
#ifndef HB_ATTACHED_H
#define HB_ATTACHED_H

#include "agent/attach.h"

#define HB_MSG_DONTWAIT 0x40
#define HB_REGULAR_MODE 0170000
#define HB_SOCKET_MODE 0140000

/* Is the descriptor still the socket that the stub made? */
static int hb_still_socket(int fd, uint64_t ino) {
  struct hb_stat st;
  return fd >= 0 && !hb_is_err(hb_sys2(HB_SYS_fstat, fd, &st)) && (st.mode & HB_REGULAR_MODE) == HB_SOCKET_MODE && st.ino == ino;
}

static void hb_close_sockets(void) {
  if (hb_still_socket(hb_join.socket, hb_join.socket_ino)) hb_sys1(HB_SYS_close, hb_join.socket);
  if (hb_still_socket(hb_join.peer, hb_join.peer_ino)) hb_sys1(HB_SYS_close, hb_join.peer);
  hb_join.socket = hb_join.peer = -1;
}

/* The first hook call of a program that has been attached to; also called, and in vain, by fork and vfork children. hook path */
static HB_NOINLINE void hb_join_late(void) {
  uint32_t state = HB_JOIN_READY;
  if (__atomic_load_n(&hb_join.state, __ATOMIC_RELAXED) != HB_JOIN_READY ||
      !__atomic_compare_exchange_n(&hb_join.state, &state, (uint32_t)HB_JOIN_BUSY, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
    return;
  if ((uint32_t)hb_sys1(HB_SYS_getpid, 0) != hb_join.pid) {
    __atomic_store_n(&hb_join.state, (uint32_t)HB_JOIN_READY, __ATOMIC_RELEASE);
    return;
  }
  struct hb_hello hello;
  struct hb_ready ready = {HB_MAGIC, HB_ABI_VERSION, HB_REFUSE_NO, 0, 0};
  int fd[2] = {-1, -1};
  struct hb_tls *t = hb_self();
  if (!hb_still_socket(hb_join.socket, hb_join.socket_ino) || hb_receive(hb_join.socket, &hello, fd, HB_MSG_DONTWAIT))
    ready.refused = HB_REFUSE_MMAP;
  hb_close_sockets();
  if (!ready.refused) {
    struct hb_timespec ts = {0, 0};
    int (*clock)(int, struct hb_timespec *) = (int (*)(int, struct hb_timespec *))hb_vdso_find(hb_join.vdso, HB_VDSO_CLOCK);
    if (clock && clock(HB_CLOCK_MONOTONIC, &ts) == 0 && ts.sec > 0) hb_vdso_clock = clock;
    hb_vdso_base = hb_join.vdso;
    hb.is_glibc = hb_join.is_glibc;
    hb.self_lo = (uintptr_t)__ehdr_start;
    hb.self_hi = (uintptr_t)_end;
    hb_main_stack(hb_join.random);
    ready.refused = hb_real.malloc && hb_real.free ? hb_map(&hello, fd[0]) : (uint32_t)HB_REFUSE_UNRESOLVED;
  }
  if (!ready.refused) {
    hb_map_tables(&hello, fd[1]);
    hb.start_lo = hb_join.thread_start;
    hb.start_hi = hb_join.thread_start_end;
  }
  for (int i = 0; i < 2; i++)
    if (fd[i] >= 0) hb_sys1(HB_SYS_close, fd[i]);
  if (!ready.refused && !hb_proc_claim(0, hello.host_pid, 0)) ready.refused = HB_REFUSE_NO_SLOT;
  if (!ready.refused) {
    hb_ready(&ready, t);
    if (hb_thread_join_session(t, NULL)) {
      hb_proc_announce(t);
      hb_signal_install();
    }
  }
  hb_join.refused = ready.refused;
  hb_join.proc_slot = ready.proc_slot;
  hb_join.proc_uid = ready.proc_uid;
  __atomic_store_n(&hb_join.state, (uint32_t)(ready.refused ? HB_JOIN_REFUSED : HB_JOIN_DONE), __ATOMIC_RELEASE);
}

enum { HB_LEAVE_SIGNAL, HB_LEAVE_MEMORY };

/* Take back what only the program itself can: what the kernel does with our signal, and descriptors; then, when no thread is inside,
 * what was mapped besides the agent's own memory, which the stub unmaps. */
__attribute__((used, noinline)) static long hb_leave(long what) {
  if (what == HB_LEAVE_SIGNAL) {
    hb_close_sockets();
    struct hb_sigaction now = {0, 0, 0, 0}, to = *hb_app_action();
    if (!hb.signal || hb_is_err(hb_sys4(HB_SYS_rt_sigaction, hb.signal, NULL, &now, 8)) || now.handler != (void *)hb_on_signal) return 0;
    if (to.handler != HB_SIG_DFL && to.handler != HB_SIG_IGN && !to.restorer) {
      to.flags |= HB_SA_RESTORER;
      to.restorer = (void *)hb_join.restorer;
    }
    return hb_sys4(HB_SYS_rt_sigaction, hb.signal, &to, NULL, 8);
  }
  for (int i = 0; i < HB_MAPPINGS; i++) {
    uint64_t at = hb_load_relaxed(&hb_mappings[i].at);
    if (at > 1) hb_sys2(HB_SYS_munmap, at, hb_mappings[i].bytes);
    hb_store_relaxed(&hb_mappings[i].at, (uint64_t)0);
  }
  return 0;
}

#endif
