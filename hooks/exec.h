/* exec.h: handing on to another program. LD_PRELOAD goes with the environment, but the agent's file may not be
 * there where the next loader looks (behind chroot, in a mount namespace with another /tmp) or may not be openable
 * (no descriptor left); the loader would say so on the program's stderr. So whoever execs looks first, and where
 * the file cannot be opened our entry is left out of the environment that is handed on: what was in it without us. So it is,
 * without looking, where the program has confined its system calls: whatever it starts would meet the same filter with calls of ours. */
#ifndef HB_EXEC_H
#define HB_EXEC_H

#include <stdarg.h>

#include "hooks/follow.h"
#include "hooks/wait.h"

#define HB_ENV_PRELOAD "LD_PRELOAD="
#define HB_EXEC_VARS 192 /* more are copied to pages of their own */
#define HB_EXEC_TEXT 1024
#define HB_O_RDONLY_CLOEXEC 02000000
#if defined(__aarch64__)
#define HB_O_DIRECTORY 040000
#else
#define HB_O_DIRECTORY 0200000
#endif

/* The environment to hand on, where it is not the program's own. */
struct hb_exec {
  char *few[HB_EXEC_VARS];
  char text[HB_EXEC_TEXT]; /* LD_PRELOAD without our entry */
  void *pages;
  size_t bytes;
};

/* The length of our entry at the start of LD_PRELOAD's value, 0 when there is none: the path ends with the name that
 * agent.go gives the file. hook path */
static size_t hb_preload_entry(const char *value) {
  static const char name[] = "/agent-$PLATFORM.so";
  size_t n = 0, k = sizeof name - 1;
  while (value[n] && value[n] != ':' && value[n] != ' ') n++;
  if (n < k) return 0;
  for (size_t i = 0; i < k; i++)
    if (value[n - k + i] != name[i]) return 0;
  return n;
}

/* Is this directory the one that we were loaded from? The path outlives it in the environment of daemons, and where a cleaner
 * of old files has been, somebody else may have made it again. hook path, also in vfork children */
static int hb_home_is(const char *dir) {
  struct hb_stat st;
  if (!hb.home.ino) return 1;
  long fd = hb_open(dir, HB_O_RDONLY_CLOEXEC | HB_O_DIRECTORY);
  if (hb_is_err(fd)) return 0;
  long r = hb_sys2(HB_SYS_fstat, fd, &st);
  hb_sys1(HB_SYS_close, fd);
  return !hb_is_err(r) && st.dev == hb.home.dev && st.ino == hb.home.ino &&
         (st.uid == hb.home.uid || !hb_userns_is(hb.home.userns));
}

/* hook path, also in vfork children */
static int hb_out_of_sight(const char *path, size_t n) {
  char copy[512];
  if (hb.confined) return 1;
  if (n >= sizeof copy) return 0;
  memcpy(copy, path, n);
  copy[n] = 0;
  long fd = hb_open(copy, HB_O_RDONLY_CLOEXEC); /* the file has this name too, dollar and all */
  if (hb_is_err(fd)) return 1;
  hb_sys1(HB_SYS_close, fd);
  while (copy[n] != '/') n--; /* the name that it ends with begins so */
  copy[n] = 0;
  return !hb_home_is(copy);
}

static const char *hb_preload_value(const char *var) {
  size_t k = sizeof HB_ENV_PRELOAD - 1;
  for (size_t i = 0; i < k; i++)
    if (var[i] != HB_ENV_PRELOAD[i]) return NULL;
  return var + k;
}

/* The environment to hand on instead of env: env itself, or a copy without our entry in x. hook path, also in vfork
 * children: nothing but x and pages is written (the pages of a child that succeeds are its parent's to keep) */
static char *const *hb_exec_environ(struct hb_exec *x, char *const *env) {
  size_t n = 0, at = 0, entry = 0;
  x->pages = NULL;
  if (!env) return env;
  for (; env[n]; n++) {
    const char *value = entry ? NULL : hb_preload_value(env[n]);
    if (value && (entry = hb_preload_entry(value)) != 0) at = n;
  }
  if (!entry) return env;
  const char *value = env[at] + sizeof HB_ENV_PRELOAD - 1;
  if (!hb_out_of_sight(value, entry)) return env;
  const char *rest = value + entry + (value[entry] ? 1 : 0);
  size_t k = hb_strlen(rest);
  if (k + sizeof HB_ENV_PRELOAD > sizeof x->text) return env;
  memcpy(x->text, HB_ENV_PRELOAD, sizeof HB_ENV_PRELOAD - 1);
  memcpy(x->text + sizeof HB_ENV_PRELOAD - 1, rest, k + 1);
  char **out = x->few;
  if (n >= HB_EXEC_VARS) {
    x->bytes = (n + 1) * sizeof *out;
    if (!(x->pages = out = hb_pages(x->bytes))) return env;
  }
  size_t j = 0;
  for (size_t i = 0; i < n; i++)
    if (i != at) out[j++] = env[i];
    else if (k) out[j++] = x->text;
  out[j] = NULL;
  return out;
}

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

HB_INLINE char *const *hb_own_environ(void) { return &environ ? environ : NULL; }

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

/* Whatever takes `environ` itself (system, popen, wordexp inside libc) must find it fit to hand on: where our file is out of
 * sight, our entry is cut out of it in place. hook path */
static void hb_environ_cut(void) {
  if (!&environ || !environ) return;
  for (char **e = environ; *e; e++) {
    char *value = (char *)(uintptr_t)hb_preload_value(*e);
    size_t n = value ? hb_preload_entry(value) : 0;
    if (!n || !hb_out_of_sight(value, n)) continue;
    const char *rest = value + n + (value[n] ? 1 : 0);
    do *value++ = *rest;
    while (*rest++);
  }
}

HB_EXPORT int chroot(const char *path) {
  typedef int (*fn)(const char *);
  fn real = HB_REAL(fn, chroot);
  if (!real) return (int)hb_fail(HB_ENOSYS);
  int r = real(path);
  if (r == 0) hb_environ_cut();
  return r;
}

#endif
