/* async.c: preloaded, compares walks from a timer's signal handler with libunwind's at the same stop: every
 * HBTEST_EVERY µs of CPU, HBTEST_STOPS times. The result goes to HBTEST_DIR/result. */
#include "inside.h"

#define UNW_LOCAL_ONLY
#include <dlfcn.h>
#include <libunwind.h>
#include <sys/syscall.h>
#include <sys/time.h>

static struct hb_frame frames[HB_MAX_FRAMES];
static struct hb_rules rules;
static uintptr_t theirs[HB_MAX_FRAMES + 8];
static long stops, same, shorter, longer, differ, cut, guessed, limit;
static struct { uintptr_t pc, ours, theirs; long n; const char *what; } bad[32];
static pid_t self;

static void note(const char *what, uintptr_t pc, uintptr_t a, uintptr_t b) {
  for (int k = 0; k < 32; k++) {
    if (bad[k].n && (bad[k].pc != pc || bad[k].what != what)) continue;
    if (!bad[k].n++) bad[k].pc = pc, bad[k].ours = a, bad[k].theirs = b, bad[k].what = what;
    return;
  }
}

static void stop(int sig, siginfo_t *si, void *ctx) {
  (void)sig, (void)si;
  int e = errno;
  greg_t *g = ((ucontext_t *)ctx)->uc_mcontext.gregs;
  if (stops >= limit || syscall(SYS_gettid) != self || !hb_in(test_main_stack(), (uintptr_t)g[REG_RSP])) return;
  struct hb_unwind u = test_unwind(&rules);
  struct hb_collect c = {frames, 0};
  struct hb_cursor at;
  struct hb_walked w = {0, 0, 0};
  hb_cursor_signal(&at, ctx, test_main_stack());
  hb_collect_add(&c, hb_pc(HB_PC_EXACT, at.pc), at.at);
  hb_walk_table(&u, &at, &c, &w);
  int n = 0, ours = (int)c.total;
  hb_collect_end(&c, &w);
  unw_cursor_t cursor;
  unw_init_local2(&cursor, ctx, UNW_INIT_SIGNAL_FRAME);
  do {
    unw_word_t ip;
    unw_get_reg(&cursor, UNW_REG_IP, &ip);
    if (!ip) break;
    theirs[n++] = ip;
  } while (n < HB_MAX_FRAMES && unw_step(&cursor) > 0);
  if (ours > HB_LEAF_FRAMES || n > HB_LEAF_FRAMES) {
    errno = e;
    return; /* both would be cut */
  }
  stops++;
  if (w.flags & HB_STACK_CUT) cut++;
  if (w.flags & HB_STACK_GUESSED) guessed++, note("a guess", (uintptr_t)(frames[0].pc & HB_PC_BITS), ours > 1 ? (uintptr_t)(frames[1].pc & HB_PC_BITS) : 0, n > 1 ? theirs[1] : 0);
  int k = 0;
  while (k < n && k < ours && theirs[k] == (uintptr_t)(frames[k].pc & HB_PC_BITS)) k++;
  uintptr_t pc = k ? theirs[k - 1] : 0, a = k < ours ? (uintptr_t)(frames[k].pc & HB_PC_BITS) : 0, b = k < n ? theirs[k] : 0;
  if (k == n && k == ours)
    same++;
  else if (k == ours)
    shorter++, note("ours is shorter", pc, a, b);
  else if (k == n)
    longer++, note("libunwind's is shorter", pc, a, b);
  else
    differ++, note("they differ", pc, a, b);
  errno = e;
}

static void where(FILE *f, uintptr_t p) {
  Dl_info d;
  if (p && dladdr((void *)p, &d) && d.dli_fname)
    fprintf(f, "%s+0x%lx(%s)", d.dli_fname, (unsigned long)(p - (uintptr_t)d.dli_fbase), d.dli_sname ? d.dli_sname : "?");
  else
    fprintf(f, "0x%lx", (unsigned long)p);
}

__attribute__((destructor)) static void finish(void) {
  if (!self || syscall(SYS_getpid) != self) return;
  struct itimerval none = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &none, NULL);
  char path[4096];
  snprintf(path, sizeof path, "%s/result", getenv("HBTEST_DIR"));
  FILE *f = fopen(path, "w");
  if (!f) return;
  fprintf(f, "stops %ld\nsame %ld\nshorter %ld\nlonger %ld\ndiffer %ld\ncut %ld\nguessed %ld\n", stops, same, shorter, longer, differ,
          cut, guessed);
  for (int k = 0; k < 32 && bad[k].n; k++) {
    fprintf(f, "%ld times %s after ", bad[k].n, bad[k].what);
    where(f, bad[k].pc);
    fprintf(f, ": ours ");
    where(f, bad[k].ours);
    fprintf(f, " libunwind ");
    where(f, bad[k].theirs);
    fprintf(f, "\n");
  }
  fclose(f);
}

__attribute__((visibility("default"))) void hbtest_begin(void) {
  const char *dir = getenv("HBTEST_DIR"), *every = getenv("HBTEST_EVERY"), *n = getenv("HBTEST_STOPS");
  char path[4096];
  snprintf(path, sizeof path, "%s/begun", dir ? dir : "");
  if (!dir || open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) < 0 || !test_get_tables()) return;
  self = getpid();
  limit = n ? atol(n) : 1000;
  long us = every ? atol(every) : 1000;
  unw_context_t here;
  unw_cursor_t warm; /* libunwind makes itself ready outside the handler */
  unw_getcontext(&here);
  unw_init_local(&warm, &here);
  while (unw_step(&warm) > 0) {}
  struct sigaction a;
  memset(&a, 0, sizeof a);
  sigfillset(&a.sa_mask);
  a.sa_flags = SA_SIGINFO | SA_RESTART;
  a.sa_sigaction = stop;
  sigaction(SIGPROF, &a, NULL);
  struct itimerval t = {{us / 1000000, us % 1000000}, {us / 1000000, us % 1000000}};
  setitimer(ITIMER_PROF, &t, NULL);
}

__attribute__((constructor)) static void load(void) {
  if (!getenv("HBTEST_LATE")) hbtest_begin();
}
