/* environ.h: the environment that is handed on to another program.
 *
 * LD_PRELOAD goes with it, but the agent's file may not be there where the next loader looks (behind chroot, in a mount
 * namespace with another /tmp) or may not be openable (no descriptor left); the loader would say so on the program's
 * stderr. So whoever execs looks first, and where the file cannot be opened our entry is left out of the environment that is
 * handed on: what was in it without us. So it is, without looking, where the program has confined its system calls: whatever it
 * starts would meet the same filter with calls of ours.
 *
 * A program that replaces the environment (`env -i`, another LD_PRELOAD) means its own variables, and not us. Its child gets
 * our entry and HBTRACE_ADDED, the session's value, and takes both out again before anything of the program runs. Only
 * while the session records, and only as its user: the value holds the session's secrets. */
#ifndef HB_ENVIRON_H
#define HB_ENVIRON_H

#include "agent/real.h"
#include "agent/session.h"

#define HB_ENV_PRELOAD "LD_PRELOAD="
#define HB_EXEC_VARS 192 /* more are copied to pages of their own */
#define HB_EXEC_TEXT 1024
#define HB_O_RDONLY_CLOEXEC 02000000
#if defined(__aarch64__)
#define HB_O_DIRECTORY 040000
#else
#define HB_O_DIRECTORY 0200000
#endif

extern char **environ __attribute__((weak));

/* The environment to hand on, where it is not the program's own. */
struct hb_exec {
  char *few[HB_EXEC_VARS];
  char text[HB_EXEC_TEXT]; /* LD_PRELOAD without our entry, or with it */
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

/* ---- what we hand on where it was left out ---- */

#define HB_ENV_SESSION "HBTRACE_SESSION="
#define HB_ENV_ADDED "HBTRACE_ADDED="
#define HB_ENV_EVEN "HBTRACE_ADDED2=" /* two variables are added in any case: hb_environ_restore */
#define HB_ENV_KEPT "HBTRACE_ADDED2=1" /* so, where LD_PRELOAD has our entry from the program */
#define HB_ENTRY_BYTES 400

static struct {
  char preload[sizeof HB_ENV_PRELOAD + HB_ENTRY_BYTES]; /* with our entry alone; "": nothing is handed on */
  char session[256];
} hb_given;

HB_INLINE char *const *hb_own_environ(void) { return &environ ? environ : NULL; }

/* What follows the key, if var begins with it. */
static const char *hb_after_key(const char *var, const char *key) {
  while (*key && *var == *key) var++, key++;
  return *key ? NULL : var;
}

static const char *hb_env(const char *key) {
  const char *value = NULL;
  for (char *const *e = hb_own_environ(); e && *e && !value; e++) value = hb_after_key(*e, key);
  return value;
}

/* Remember what the session and its agent's file are called. The program may write over its environment. init only */
static void hb_given_remember(const char *session) {
  const char *value = hb_env(HB_ENV_PRELOAD);
  size_t n = value ? hb_preload_entry(value) : 0, k = hb_strlen(session);
  if (!n || n >= HB_ENTRY_BYTES || k + sizeof HB_ENV_ADDED > sizeof hb_given.session) return;
  memcpy(hb_given.session, HB_ENV_ADDED, sizeof HB_ENV_ADDED - 1);
  memcpy(hb_given.session + sizeof HB_ENV_ADDED - 1, session, k + 1);
  memcpy(hb_given.preload, HB_ENV_PRELOAD, sizeof HB_ENV_PRELOAD - 1);
  memcpy(hb_given.preload + sizeof HB_ENV_PRELOAD - 1, value, n);
}

/* Is this variable's session another one than ours, or none? */
static int hb_another_session(const char *value) {
  const char *ours = hb_given.session + sizeof HB_ENV_ADDED - 1;
  while (*value && *value == *ours) value++, ours++;
  return *value || *ours;
}

/* May what we were given be handed on? The file is looked at as hb_exec_environ does. hook path, also in vfork children */
static int hb_given_may(void) {
  if (!hb_given.preload[0] || !hb_load_relaxed(&hb.on) || hb.confined || hb_load_relaxed(&hb.silent_beat)) return 0;
  if ((uint64_t)hb_sys1(HB_SYS_getuid, 0) != hb.home.uid || (uint64_t)hb_sys1(HB_SYS_geteuid, 0) != hb.home.uid) return 0;
  const char *entry = hb_given.preload + sizeof HB_ENV_PRELOAD - 1;
  return !hb_out_of_sight(entry, hb_strlen(entry));
}

/* Room for n variables and the end; NULL: there is none. hook path */
static char **hb_exec_room(struct hb_exec *x, size_t n) {
  if (n < HB_EXEC_VARS) return x->few;
  x->bytes = (n + 1) * sizeof *x->few;
  return x->pages = hb_pages(x->bytes);
}

/* The environment without our entry, which is in variable `at`. hook path, also in vfork children */
static char *const *hb_environ_without(struct hb_exec *x, char *const *env, size_t n, size_t at, size_t entry) {
  const char *value = env[at] + sizeof HB_ENV_PRELOAD - 1, *rest = value + entry + (value[entry] ? 1 : 0);
  size_t k = hb_strlen(rest), j = 0;
  if (k + sizeof HB_ENV_PRELOAD > sizeof x->text) return env;
  memcpy(x->text, HB_ENV_PRELOAD, sizeof HB_ENV_PRELOAD - 1);
  memcpy(x->text + sizeof HB_ENV_PRELOAD - 1, rest, k + 1);
  char **out = hb_exec_room(x, n);
  if (!out) return env;
  for (size_t i = 0; i < n; i++)
    if (i != at) out[j++] = env[i];
    else if (k) out[j++] = x->text;
  out[j] = NULL;
  return out;
}

/* The environment with our entry in front of variable `at`'s value (n: there is none), and with the session. hook path, also in
 * vfork children */
static char *const *hb_environ_with(struct hb_exec *x, char *const *env, size_t n, size_t at) {
  const char *theirs = at < n ? env[at] + sizeof HB_ENV_PRELOAD - 1 : NULL;
  size_t k = theirs ? hb_strlen(theirs) : 0, own = hb_strlen(hb_given.preload), j = 0;
  if (own + 1 + k + 1 > sizeof x->text || !hb_given_may()) return env;
  char **out = hb_exec_room(x, n + 2);
  if (!out) return env;
  memcpy(x->text, hb_given.preload, own + 1);
  int kept = theirs && hb_preload_entry(theirs);
  if (theirs && !kept) {
    x->text[own] = ':';
    memcpy(x->text + own + 1, theirs, k + 1);
  }
  for (size_t i = 0; i < n; i++) out[j++] = i == at && !kept ? x->text : env[i];
  out[j++] = hb_given.session;
  out[j++] = kept ? (char *)(uintptr_t)HB_ENV_KEPT : theirs ? (char *)(uintptr_t)HB_ENV_EVEN : x->text;
  out[j] = NULL;
  return out;
}

/* The environment to hand on instead of env: env itself, or a copy in x. hook path, also in vfork children: nothing but x and
 * pages is written (the pages of a child that succeeds are its parent's to keep) */
static char *const *hb_exec_environ(struct hb_exec *x, char *const *env) {
  static char *const none[] = {NULL};
  const char *session = NULL;
  size_t n = 0, at = SIZE_MAX, entry = 0;
  char *const *from = env ? env : none;
  x->pages = NULL;
  for (; from[n]; n++) {
    const char *value = entry ? NULL : hb_preload_value(from[n]);
    if (value && ((entry = hb_preload_entry(value)) != 0 || at == SIZE_MAX)) at = n;
    if (!session) session = hb_after_key(from[n], HB_ENV_SESSION);
  }
  if (entry && hb_out_of_sight(from[at] + sizeof HB_ENV_PRELOAD - 1, entry)) return hb_environ_without(x, from, n, at, entry);
  if ((entry && session) || (session && hb_another_session(session))) return env;
  char *const *with = hb_environ_with(x, from, n, at == SIZE_MAX ? n : at);
  return with == from ? env : with;
}

/* Take out of our own environment what a parent added. Where programs look for the kernel's vector behind their environment, which
 * is two variables shorter now, they find its first entry twice. init only */
static void hb_environ_restore(const uint64_t first[2]) {
  char **to = environ, **e = environ;
  const char *kept = hb_env(HB_ENV_EVEN);
  for (; *e; e++) {
    char *value = kept && *kept ? NULL : (char *)(uintptr_t)hb_preload_value(*e);
    size_t n = value ? hb_preload_entry(value) : 0;
    if (hb_after_key(*e, HB_ENV_ADDED) || hb_after_key(*e, HB_ENV_EVEN) || (n && !value[n])) continue;
    if (n) {
      const char *rest = value + n + 1;
      do *value++ = *rest;
      while (*rest++);
    }
    *to++ = *e;
  }
  *to = NULL;
  uintptr_t end = (uintptr_t)e;
  uint64_t *vector = (uint64_t *)(end + sizeof *e);
  if (e - to != 2 || end < hb.main_stack_lo || end + 24 > hb.main_stack_hi || vector[0] != first[0] || vector[1] != first[1]) return;
  memcpy(to + 1, first, 2 * sizeof *first);
}

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

#endif
