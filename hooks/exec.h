/* exec.h: handing on to another program: the functions that do, with the environment of environ.h, and the gate before them. */
#ifndef HB_EXEC_H
#define HB_EXEC_H

#include <stdarg.h>

#include "hooks/environ.h"
#include "hooks/follow.h"
#include "hooks/wait.h"

#define HB_GATE_LIMIT_NS 2000000000u /* a sampler that takes longer to send one signal is dead, or stopped */

/* With a real-time sampling signal, whose default action is to kill: nobody sends one to this process from here on, and what
 * is in flight for this thread is taken. (What is pending on others dies with them; but one that is sent to the
 * first thread's id later would meet us under it.) Returns what hb_exec_ungate has to undo. hook path; a vfork child
 * passes by, nobody signals it */
static int hb_exec_gate(struct hb_block *b) {
  struct hb_tls *t = hb_self();
  hb_lend_end(t); /* the mask is handed on */
  /* where this image's CPU time ends and the exec's begins (hb_emit_exec) */
  if (hb_load_relaxed(&hb.on) && t->slot && hb_load_relaxed(&hb.wiped->alive) && (uint32_t)hb_sys1(HB_SYS_gettid, 0) == t->tid)
    hb_store_relaxed(&t->slot->cpu_ns, hb_thread_cpu_ns());
  if (hb.signal < 32 || !hb_load_relaxed(&hb.on) || !hb_load_relaxed(&hb.wiped->alive) ||
      (uint32_t)hb_sys1(HB_SYS_getpid, 0) != hb.pid)
    return 0;
  atomic_fetch_add_explicit(&hb.slot->gate, (uint32_t)HB_GATE_EXEC, memory_order_seq_cst);
  uint64_t from = hb_now_ns();
  for (uint32_t i = 1; hb_load_acquire(&hb.slot->gate) & HB_GATE_SENDING; i++) {
    if (i % 1024) continue;
    if (hb.gate_stuck || hb_now_ns() - from > HB_GATE_LIMIT_NS) { /* once for each process, whoever holds it */
      hb.gate_stuck = 1;
      break;
    }
    hb_sys1(HB_SYS_sched_yield, 0);
  }
  if (!t->slot || (uint32_t)hb_sys1(HB_SYS_gettid, 0) != t->tid) return 1;
  hb_block_enter(t, t->slot, b, HB_FRAME);
  return 2;
}

static void hb_exec_ungate(struct hb_block *b, int gated) {
  struct hb_tls *t = hb_self();
  if (gated == 2) hb_block_leave(t, t->slot, b);
  if (gated) hb_sub_relaxed(&hb.slot->gate, (uint32_t)HB_GATE_EXEC);
}

/* After an exec that failed. hook path */
static int hb_exec_failed(struct hb_exec *x, int r) {
  if (x->pages) hb_unmap(x->pages, x->bytes);
  return r;
}

typedef char *const *hb_strings;

HB_EXPORT int execve(const char *path, hb_strings argv, hb_strings env) {
  typedef int (*fn)(const char *, hb_strings, hb_strings);
  fn real = HB_REAL(fn, execve);
  struct hb_exec x;
  if (!real) return (int)hb_fail(HB_ENOSYS);
  long followed = hb_follow(path);
  struct hb_block b;
  int gated = hb_exec_gate(&b);
  int r = hb_exec_failed(&x, real(path, argv, hb_exec_environ(&x, env)));
  hb_exec_ungate(&b, gated);
  hb_unfollow(followed);
  return r;
}

HB_EXPORT int execv(const char *path, hb_strings argv) { return execve(path, argv, hb_own_environ()); }

HB_EXPORT int execvpe(const char *file, hb_strings argv, hb_strings env) {
  typedef int (*fn)(const char *, hb_strings, hb_strings);
  fn real = HB_REAL(fn, execvpe);
  struct hb_exec x;
  if (!real) return (int)hb_fail(HB_ENOSYS);
  long followed = hb_follow_found(file);
  struct hb_block b;
  int gated = hb_exec_gate(&b);
  int r = hb_exec_failed(&x, real(file, argv, hb_exec_environ(&x, env)));
  hb_exec_ungate(&b, gated);
  hb_unfollow(followed);
  return r;
}

HB_EXPORT int execvp(const char *file, hb_strings argv) { return execvpe(file, argv, hb_own_environ()); }

HB_EXPORT int fexecve(int fd, hb_strings argv, hb_strings env) {
  typedef int (*fn)(int, hb_strings, hb_strings);
  fn real = HB_REAL(fn, fexecve);
  struct hb_exec x;
  if (!real) return (int)hb_fail(HB_ENOSYS);
  struct hb_block b;
  int gated = hb_exec_gate(&b);
  int r = hb_exec_failed(&x, real(fd, argv, hb_exec_environ(&x, env)));
  hb_exec_ungate(&b, gated);
  return r;
}

HB_EXPORT int execveat(int dir, const char *path, hb_strings argv, hb_strings env, int flags) {
  typedef int (*fn)(int, const char *, hb_strings, hb_strings, int);
  fn real = HB_REAL(fn, execveat);
  struct hb_exec x;
  if (!real) return (int)hb_fail(HB_ENOSYS);
  struct hb_block b;
  int gated = hb_exec_gate(&b);
  int r = hb_exec_failed(&x, real(dir, path, argv, hb_exec_environ(&x, env), flags));
  hb_exec_ungate(&b, gated);
  return r;
}

/* By number, through syscall(2). */
static HB_NOINLINE long hb_exec_syscall(long n, long a, long b, long c, long d, long e, long f) {
  typedef long (*fn)(long, long, long, long, long, long, long);
  fn real = (fn)hb_real.syscall;
  struct hb_exec x;
  struct hb_block block;
  long followed = n == HB_SYS_execve ? hb_follow((const char *)a) : -1;
  int gated = hb_exec_gate(&block);
  long *env = n == HB_SYS_execve ? &c : &d;
  *env = (long)hb_exec_environ(&x, (hb_strings)*env);
  long r = hb_exec_failed(&x, (int)real(n, a, b, c, d, e, f));
  hb_exec_ungate(&block, gated);
  hb_unfollow(followed);
  return r;
}

/* The variadic forms collect their arguments as libc does, on the stack. */
#define HB_EXECL(symbol, call, environment)                                                  \
  HB_EXPORT int symbol(const char *path, const char *arg, ...) {                             \
    va_list list, again;                                                                     \
    size_t n = 1;                                                                            \
    va_start(list, arg);                                                                     \
    va_copy(again, list);                                                                    \
    if (arg) while (va_arg(list, char *)) n++;                                               \
    va_end(list);                                                                            \
    char **argv = __builtin_alloca((n + 1) * sizeof *argv);                                  \
    argv[0] = (char *)(uintptr_t)arg;                                                        \
    for (size_t i = 1; i <= n; i++) argv[i] = arg ? va_arg(again, char *) : NULL;            \
    hb_strings env = environment;                                                            \
    va_end(again);                                                                           \
    return call(path, argv, env);                                                            \
  }
HB_EXECL(execl, execve, hb_own_environ())
HB_EXECL(execlp, execvpe, hb_own_environ())
HB_EXECL(execle, execve, va_arg(again, hb_strings))

#define HB_SPAWN(symbol, exported)                                                                         \
  HB_EXPORT int exported(int *pid, const char *path, const void *actions, const void *attr, hb_strings argv, \
                         hb_strings env) {                                                                 \
    typedef int (*fn)(int *, const char *, const void *, const void *, hb_strings, hb_strings);             \
    fn real = HB_REAL(fn, symbol);                                                                         \
    struct hb_exec x;                                                                                      \
    if (!real) return HB_ENOSYS;                                                                           \
    hb_lend_end(hb_self());                                                                                \
    return hb_exec_failed(&x, real(pid, path, actions, attr, argv, hb_exec_environ(&x, env)));             \
  }
HB_SPAWN(posix_spawn, HB_VERSIONED(posix_spawn))
HB_SPAWN(posix_spawnp, HB_VERSIONED(posix_spawnp))

HB_EXPORT int chroot(const char *path) {
  typedef int (*fn)(const char *);
  fn real = HB_REAL(fn, chroot);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  int r = real(path);
  if (r == 0) hb_environ_cut();
  return r;
}

#endif
