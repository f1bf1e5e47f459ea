/* step.c: preloaded, single-steps the program it is in and walks the stack at every instruction; each walk must
 * equal the shadow stack, which calls and returns keep. The shadow of a stretch begins as libgcc's unwinder sees
 * the stack, where that is the truth: not while libgcc throws. Usage: HBTEST_DIR, HBTEST_STEPS in all, HBTEST_STRETCH steps at a time, HBTEST_EVERY µs of CPU. The
 * result goes to HBTEST_DIR/result. */
#include "inside.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define DEEP 60000
static struct { uintptr_t slot, ra; } shadow[DEEP];
static uint32_t top; /* shadow[0] is outermost */
static struct hb_frame frames[HB_MAX_FRAMES];
static struct hb_rules rules;
static struct hb_memory memory;
static struct hb_taken scratch;
static long steps, limit, stretch, left, equal, differ, deep, starts, starts_differ, every, maxdepth, joined, kept_solid, verify_differ,
    throwing, throwing_equal, starts_throwing, cut, ends[16];
static volatile int on;
static uintptr_t last_pc, last_sp;
static pid_t self;
static struct hb_range unwinder; /* text of libgcc */
static struct { uintptr_t pc, got, want; long n; int end; uint32_t frame; } bad[64];

static int is_call(uintptr_t from, uintptr_t to) { /* does the instruction [from, to) call? */
  const uint8_t *p = (const uint8_t *)from, *end = (const uint8_t *)to;
  while (p < end && (*p == 0x66 || *p == 0x67 || *p == 0x2e || *p == 0x36 || *p == 0x3e || *p == 0x26 || *p == 0x64 ||
                     *p == 0x65 || *p == 0xf2 || *p == 0xf3 || (*p & 0xf0) == 0x40))
    p++;
  return p < end && (*p == 0xe8 || (p + 1 < end && *p == 0xff && (p[1] & 0x30) == 0x10));
}

static uint64_t walk(const void *uc, struct hb_walked *w, enum hb_walk_end *end) {
  struct hb_unwind u = test_unwind(&rules);
  struct hb_collect c = {frames, 0};
  struct hb_cursor at;
  hb_cursor_signal(&at, uc, test_main_stack());
  *w = (struct hb_walked){0, 0, 0};
  hb_collect_add(&c, hb_pc(HB_PC_EXACT, at.pc), at.at);
  *end = hb_walk_table(&u, &at, &c, w);
  uint32_t total = c.total;
  hb_collect_end(&c, w);
  return total;
}

/* The verified walk must give what the plain one gave. */
static void verify(const void *uc, uint32_t n) {
  struct hb_unwind u = test_unwind(&rules);
  struct hb_cursor at;
  struct hb_walked w = {0, 0, 0};
  hb_cursor_signal(&at, uc, test_main_stack());
  struct hb_verified v;
  hb_walk_verify(&u, &at, &memory, &scratch, &w, &v);
  if (v.end == HB_WALK_JOINED) joined++;
  hb_memory_keep(&memory, &u, &at, &scratch, &v);
  int same = memory.depth == n;
  for (uint32_t i = 0; same && i < n; i++)
    same = memory.f[n - 1 - i].pc == frames[i].pc && memory.f[n - 1 - i].at == frames[i].at;
  if (!same) verify_differ++;
  if (memory.solid + 1 >= memory.depth) kept_solid++;
}

static void note(uintptr_t pc, uintptr_t got, uintptr_t want, int end, uint32_t frame) {
  for (int k = 0; k < 64; k++) {
    if (bad[k].n && (bad[k].pc != pc || bad[k].end != end)) continue;
    if (!bad[k].n++) bad[k].pc = pc, bad[k].got = got, bad[k].want = want, bad[k].end = end, bad[k].frame = frame;
    return;
  }
}

/* At the end of a throw libgcc overwrites its own frame's return address and saved registers, to "return" to the handler: where the
 * stack leads is then a matter of opinion, also to its own backtrace(), which has been seen to run into nothing there: it is not asked. */
static int throws_at(uintptr_t pc, uintptr_t ra, uintptr_t ra2) { return hb_in(unwinder, pc) || hb_in(unwinder, ra) || hb_in(unwinder, ra2); }

/* Does libgcc see the stack as frames[0 .. total) has it? *i: where not, and *pc what it sees there. */
static int libgcc_agrees(uintptr_t leaf, uint64_t total, int *i, uintptr_t *pc) {
  static void *truth[4000];
  int n = backtrace(truth, 4000), k = 0;
  while (k < n && truth[k] != (void *)leaf) k++;
  n -= k;
  if (total > HB_MAX_FRAMES) return 0;
  for (*i = 0; *i < (int)total || *i < n; ++*i) {
    *pc = *i < n ? (uintptr_t)truth[k + *i] : 0;
    if (*i >= (int)total || *pc != (frames[*i].pc & HB_PC_BITS)) return 0;
  }
  return 1;
}

static void again(void) {
  struct itimerval t = {{0, 0}, {every / 1000000, every % 1000000}};
  setitimer(ITIMER_PROF, &t, NULL);
}

static void trap(int sig, siginfo_t *si, void *ctx) {
  (void)sig, (void)si;
  greg_t *g = ((ucontext_t *)ctx)->uc_mcontext.gregs;
  if (!on || syscall(SYS_getpid) != self) {
    g[REG_EFL] &= ~0x100;
    return;
  }
  uintptr_t pc = (uintptr_t)g[REG_RIP], sp = (uintptr_t)g[REG_RSP];
  if (sp == last_sp - 8) {
    uintptr_t ra = *(uintptr_t *)sp;
    if (ra > last_pc && ra <= last_pc + 12 && is_call(last_pc, ra) && top < DEEP) {
      shadow[top].slot = sp;
      shadow[top++].ra = ra;
    }
  }
  while (top && shadow[top - 1].slot < sp) top--;
  last_pc = pc, last_sp = sp;
  steps++;
  struct hb_walked w;
  enum hb_walk_end end;
  uint64_t total = walk(ctx, &w, &end);
  ends[end]++;
  if ((long)total > maxdepth) maxdepth = (long)total;
  if (w.flags & HB_STACK_CUT) cut++;
  uint32_t n = total > HB_MAX_FRAMES ? HB_LEAF_FRAMES : (uint32_t)total, k = 1;
  if (total > HB_MAX_FRAMES) deep++;
  int throws = throws_at(pc, top > 0 ? shadow[top - 1].ra : 0, top > 1 ? shadow[top - 2].ra : 0);
  throwing += throws; /* counted apart */
  int same = total == (uint64_t)top + 1;
  while (same && k < n && (frames[k].pc & HB_PC_BITS) == shadow[top - k].ra && frames[k].at == shadow[top - k].slot) k++;
  if (same && k == n) {
    equal++;
    throwing_equal += throws;
    if (total <= HB_MAX_FRAMES) verify(ctx, n);
  } else {
    differ++;
    for (k = 1; k < n && k <= top && (frames[k].pc & HB_PC_BITS) == shadow[top - k].ra; k++) {}
    note((uintptr_t)(frames[k - 1].pc & HB_PC_BITS), k < n ? (uintptr_t)(frames[k].pc & HB_PC_BITS) : 0,
         k <= top ? shadow[top - k].ra : 0, (int)end, k - 1);
  }
  if (--left <= 0 || steps >= limit) {
    on = 0;
    g[REG_EFL] &= ~0x100;
    if (steps < limit) again();
  }
}

/* Is the walk's stack the truth that a stretch can begin with? */
static int may_start(uintptr_t pc, uint64_t total, enum hb_walk_end end) {
  int i;
  uintptr_t seen = 0;
  starts++;
  if (throws_at(pc, total > 1 ? frames[1].pc & HB_PC_BITS : 0, total > 2 ? frames[2].pc & HB_PC_BITS : 0)) {
    starts_throwing++;
    return 0;
  }
  if (libgcc_agrees(pc, total, &i, &seen)) return 1;
  starts_differ++;
  if (total <= HB_MAX_FRAMES)
    note(i ? (uintptr_t)(frames[i - 1].pc & HB_PC_BITS) : 0, i < (int)total ? (uintptr_t)(frames[i].pc & HB_PC_BITS) : 0, seen,
         100 + (int)end, (uint32_t)i);
  return 0;
}

static void start(int sig, siginfo_t *si, void *ctx) {
  (void)sig, (void)si;
  int e = errno;
  greg_t *g = ((ucontext_t *)ctx)->uc_mcontext.gregs;
  uintptr_t sp = (uintptr_t)g[REG_RSP];
  struct hb_walked w;
  enum hb_walk_end end;
  uint64_t total = 0;
  /* another thread, or no truth to start from: tried again */
  if (syscall(SYS_gettid) == self && hb_in(test_main_stack(), sp)) total = walk(ctx, &w, &end);
  if (!total || !may_start((uintptr_t)g[REG_RIP], total, end)) {
    again();
    errno = e;
    return;
  }
  top = 0;
  for (uint32_t i = (uint32_t)total - 1; i > 0; i--) {
    shadow[top].slot = frames[i].at;
    shadow[top++].ra = (uintptr_t)(frames[i].pc & HB_PC_BITS);
  }
  last_pc = (uintptr_t)g[REG_RIP], last_sp = sp;
  left = stretch;
  on = 1;
  g[REG_EFL] |= 0x100;
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
  on = 0;
  struct itimerval none = {{0, 0}, {0, 0}};
  setitimer(ITIMER_PROF, &none, NULL);
  char path[4096];
  snprintf(path, sizeof path, "%s/result", getenv("HBTEST_DIR"));
  FILE *f = fopen(path, "w");
  if (!f) return;
  fprintf(f, "steps %ld\nequal %ld\ndiffer %ld\ndeep %ld\nstarts %ld\nstarts_differ %ld\nmaxdepth %ld\njoined %ld\nsolid %ld\n"
          "verify_differ %ld\ncut %ld\nthrowing %ld\nthrowing_equal %ld\nstarts_throwing %ld\n",
          steps, equal, differ, deep, starts, starts_differ, maxdepth, joined, kept_solid, verify_differ, cut, throwing,
          throwing_equal, starts_throwing);
  for (int k = 0; k < 64 && bad[k].n; k++) {
    fprintf(f, "bad %ld end %d frame %u at ", bad[k].n, bad[k].end, bad[k].frame);
    where(f, bad[k].pc);
    fprintf(f, " got ");
    where(f, bad[k].got);
    fprintf(f, " want ");
    where(f, bad[k].want);
    fprintf(f, "\n");
  }
  fclose(f);
}

static long number(const char *name, long otherwise) {
  const char *s = getenv(name);
  return s ? atol(s) : otherwise;
}

/* Programs that load more modules first call it themselves, and set HBTEST_LATE. */
__attribute__((visibility("default"))) void hbtest_begin(void) {
  const char *dir = getenv("HBTEST_DIR");
  char path[4096];
  snprintf(path, sizeof path, "%s/begun", dir ? dir : "");
  if (!dir || open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) < 0) return; /* a child's exec */
  if (!test_get_tables()) return;
  void *warm[4];
  backtrace(warm, 4); /* loads libgcc, which must not happen in a handler */
  const struct hb_module *m = hb_module_at(hb_modules_adopt(&test_tables, 0, 1), (uintptr_t)dlsym(RTLD_DEFAULT, "_Unwind_Resume"));
  if (m) unwinder = (struct hb_range){m->lo, m->hi};
  self = getpid();
  limit = number("HBTEST_STEPS", 100000);
  stretch = number("HBTEST_STRETCH", 20000);
  every = number("HBTEST_EVERY", 5000);
  struct sigaction a;
  memset(&a, 0, sizeof a);
  sigfillset(&a.sa_mask);
  a.sa_flags = SA_SIGINFO;
  a.sa_sigaction = trap;
  sigaction(SIGTRAP, &a, NULL);
  a.sa_sigaction = start;
  sigaction(SIGPROF, &a, NULL);
  again();
}

__attribute__((constructor)) static void load(void) {
  if (!getenv("HBTEST_LATE")) hbtest_begin();
}
