/* cases.c: odd stacks, one function per behaviour, each walked in the process that has it. Prints what fails; exits
 * with the number of failures. */
#include "inside.h"

#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#define NOINLINE __attribute__((noinline, noclone))
static int failures;
static void fail(const char *format, ...) {
  va_list a;
  va_start(a, format);
  vprintf(format, a);
  va_end(a);
  putchar('\n');
  failures++;
}

static struct hb_rules rules;
static struct hb_frame frames[HB_MAX_FRAMES], again[HB_MAX_FRAMES];
static struct hb_memory memory;
static struct hb_taken scratch;
static struct hb_walked walked;
static enum hb_walk_end ended;
static uintptr_t wanted[16]; /* return addresses that the walk must have, leaf first */
static int wants;
static volatile int sink;
static long joins; /* of a first verified walk: not with itself */

#define EXPECT_HERE() (wanted[wants++] = (uintptr_t)__builtin_return_address(0))

/* Walk from a cursor by table, with and without the memory of rules, and by verifying, twice. All must agree. */
static void take(struct hb_unwind *u, const struct hb_cursor *from) {
  struct hb_cursor c = *from;
  struct hb_collect out = {frames, 0};
  walked = (struct hb_walked){0, 0, 0};
  hb_collect_add(&out, hb_pc(c.how, c.pc), c.at);
  ended = hb_walk_table(u, &c, &out, &walked);
  hb_collect_end(&out, &walked);

  struct hb_unwind plain = *u;
  plain.rules = NULL;
  struct hb_cursor c2 = *from;
  struct hb_collect out2 = {again, 0};
  struct hb_walked w2 = {0, 0, 0};
  hb_collect_add(&out2, hb_pc(c2.how, c2.pc), c2.at);
  enum hb_walk_end e2 = hb_walk_table(&plain, &c2, &out2, &w2);
  hb_collect_end(&out2, &w2);
  if (e2 != ended || w2.n != walked.n || w2.flags != walked.flags || memcmp(frames, again, w2.n * sizeof frames[0]))
    fail("without a memory of rules: end %d, %u frames, flags %u; with: end %d, %u frames, flags %u", e2, w2.n, w2.flags, ended,
         walked.n, walked.flags);

  for (int round = 0; round < 2 && out.total <= HB_MAX_FRAMES; round++) {
    struct hb_cursor c3 = *from;
    struct hb_walked w3 = {0, 0, 0};
    struct hb_verified v;
    hb_walk_verify(u, &c3, &memory, &scratch, &w3, &v);
    hb_memory_keep(&memory, u, &c3, &scratch, &v);
    joins += round == 0 && v.end == HB_WALK_JOINED;
    int same = w3.n == walked.n && memory.depth == walked.n && w3.flags == walked.flags;
    for (uint32_t i = 0; same && i < walked.n; i++) {
      const struct hb_kept *k = &memory.f[walked.n - 1 - i];
      same = k->pc == frames[i].pc && k->at == frames[i].at;
    }
    if (!same) fail("verified (%d, joined %u): %u frames, flags %u; walked: %u frames, flags %u", round, v.joined, memory.depth, w3.flags, walked.n, walked.flags);
  }
}

static void check(const char *name, enum hb_walk_end end, uint32_t flags) {
  uint32_t i = 0;
  int k = 0;
  for (; i < walked.n && k < wants; i++)
    if ((frames[i].pc & HB_PC_BITS) == wanted[k]) k++;
  if (k < wants) fail("%s: frame %d of the expected %d is missing (%u walked)", name, k, wants, walked.n);
  if (ended != end) fail("%s: ended by %d, want %d, after %u frames", name, ended, end, walked.n);
  if (walked.flags != flags) fail("%s: flags %u, want %u", name, walked.flags, flags);
  wants = 0;
}

NOINLINE static void hook(struct hb_unwind *u, struct hb_range stack) {
  struct hb_cursor c;
  hb_cursor_hook(&c, __builtin_frame_address(0), stack);
  EXPECT_HERE();
  take(u, &c);
}

static struct hb_unwind test_unwind_once; /* by the true tables */
static struct hb_unwind by_all(void) { return test_unwind(&rules); }

/* ---- a thread ---- */
NOINLINE static int in_thread(void) {
  pthread_attr_t a;
  void *lo;
  size_t size;
  pthread_getattr_np(pthread_self(), &a);
  pthread_attr_getstack(&a, &lo, &size);
  pthread_attr_destroy(&a);
  struct hb_unwind u = by_all();
  struct hb_range r = {(uintptr_t)lo, (uintptr_t)lo + size};
  u.stacks[0] = r;
  hook(&u, r);
  EXPECT_HERE();
  return ++sink;
}
static void *thread(void *x) {
  in_thread();
  return x;
}

/* ---- signals ---- */
static stack_t alternate;
static int step_of_signal;
static void on_signal(int sig, siginfo_t *si, void *uc) {
  (void)sig, (void)si, (void)uc;
  struct hb_unwind u = by_all();
  struct hb_range here = {(uintptr_t)alternate.ss_sp, (uintptr_t)alternate.ss_sp + alternate.ss_size};
  uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
  if (!hb_in(here, sp)) here = test_main_stack();
  u.stacks[1] = here;
  hook(&u, here);
  step_of_signal = 1;
}
NOINLINE static int raising(int sig) {
  raise(sig);
  EXPECT_HERE();
  return ++sink;
}

/* A restorer without call frame information, as musl and Go have. */
__asm__(".text\n.p2align 4\n.globl bare_restorer\nbare_restorer:\n\tmov $15,%rax\n\tsyscall\n");
extern void bare_restorer(void);

/* ---- interrupted where there is no row ---- */
__asm__(".text\n.p2align 6\n.skip 64, 0xcc\n.globl bare_spin\nbare_spin:\n1:\tdecq %rdi\n\tjnz 1b\n\tret\n.skip 64, 0xcc\n");
extern void bare_spin(long);
static volatile int ticked;
static void on_tick(int sig, siginfo_t *si, void *uc) {
  (void)sig, (void)si;
  struct hb_cursor c;
  struct hb_unwind u = by_all();
  hb_cursor_signal(&c, uc, test_main_stack());
  if (c.pc - (uintptr_t)bare_spin > 6) return; /* not there yet, or no more */
  take(&u, &c);
  ticked = 1;
}
NOINLINE static int spinning(void) {
  struct itimerval t = {{0, 1000}, {0, 1000}}, none = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &t, NULL);
  for (int i = 0; i < 1000 && !ticked; i++) bare_spin(3000000);
  setitimer(ITIMER_REAL, &none, NULL);
  EXPECT_HERE();
  return ++sink;
}

/* ---- code that nobody has rows for ---- */
static struct hb_unwind *jit_unwind;
static void from_jit(void) { hook(jit_unwind, test_main_stack()); }
NOINLINE static int through_jit(void) {
  static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}; /* push rbp; mov; call *rdi; pop; ret */
  uint8_t *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 0;
  memcpy(p + 256, code, sizeof code);
  struct hb_unwind u = by_all();
  jit_unwind = &u;
  ((void (*)(void (*)(void)))(p + 256))(from_jit);
  wanted[wants++] = (uintptr_t)p + 256 + 6;
  EXPECT_HERE();
  check("jit", HB_WALK_OUTERMOST, HB_STACK_GUESSED);
  /* interrupted at its first instruction, behind its push, and at its ret: the caller is not lost */
  static const int at[] = {0, 1, 7}, words[] = {0, 1, 0};
  for (int i = 0; i < 3; i++) {
    uintptr_t fake[64] = {0};
    fake[words[i]] = (uintptr_t)p + 256 + 6; /* called by a copy of itself */
    if (words[i]) fake[0] = (uintptr_t)&fake[10];
    struct hb_cursor c = {.pc = (uintptr_t)p + 256 + (uintptr_t)at[i], .sp = (uintptr_t)fake, .at = (uintptr_t)fake, .bp = (uintptr_t)&fake[10],
                          .lo = (uintptr_t)fake, .hi = (uintptr_t)(fake + 64), .how = HB_PC_EXACT, .exact = 1};
    fake[10] = 0;
    fake[11] = (uintptr_t)p + 256 + 6;
    take(&u, &c);
    if (walked.n < 3 || frames[1].pc != hb_pc(HB_PC_GUESS, (uintptr_t)p + 256 + 6) || frames[1].at != (uintptr_t)&fake[words[i]])
      fail("jit interrupted at %d: %u frames, second %lx", at[i], walked.n, walked.n > 1 ? frames[1].pc : 0);
  }
  wants = 0;
  return ++sink;
}

/* ---- coroutines ---- */
static ucontext_t outside, inside;
static char coroutine_stack[65536];
static int known;
static void coroutine(void) {
  struct hb_unwind u = by_all();
  struct hb_range r = {(uintptr_t)coroutine_stack, (uintptr_t)coroutine_stack + sizeof coroutine_stack};
  if (!known) { /* ask the kernel how far it can be read */
    r.lo = (uintptr_t)__builtin_frame_address(0) - 4096;
    r.hi = hb_stack_probe((uintptr_t)__builtin_frame_address(0), 64);
  }
  hook(&u, r);
}

/* ---- our own frames ---- */
NOINLINE static int ours(struct hb_unwind *u) {
  hook(u, test_main_stack());
  wants = 0;
  return ++sink;
}
NOINLINE static int leave_out(int stop) {
  struct hb_unwind u = by_all();
  u.self = (struct hb_range){(uintptr_t)ours, (uintptr_t)ours + 64}; /* the return address of hook() is in it */
  if (stop) u.stop = u.self;
  int n = ours(&u);
  EXPECT_HERE();
  return n;
}

/* ---- made-up stacks between pages that cannot be touched ---- */
#define WORDS 4096
static uint64_t seed = 88172645463325252ull;
static uint64_t next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}
static uintptr_t *guarded(size_t bytes) {
  char *p = mmap(NULL, bytes + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED || mprotect(p + 4096, bytes, PROT_READ | PROT_WRITE)) exit(99);
  return (uintptr_t *)(p + 4096);
}
static uintptr_t some_pc(const struct hb_unwind *u) {
  const struct hb_module *m = hb_module_list(u->modules) + next() % u->modules->count;
  return m->lo + next() % (m->hi - m->lo);
}
static long deepest;
static void made_up(struct hb_unwind *u, uintptr_t *stack, int rounds, int tidy) {
  struct hb_cursor base = {.lo = (uintptr_t)stack, .hi = (uintptr_t)(stack + WORDS)};
  for (int r = 0; r < rounds; r++) {
    if (r % 50 == 0) { /* a new stack: tidy calls, or anything */
      for (int i = 0; i < WORDS; i++) stack[i] = tidy ? 0 : next() & 1 ? some_pc(u) : (uintptr_t)(stack + next() % (WORDS + 64)) - 256;
      base.pc = some_pc(u);
      base.sp = (uintptr_t)(stack + 32 + next() % 64);
      base.bp = (uintptr_t)(stack + next() % WORDS);
      uintptr_t sp = base.sp, pc = base.pc;
      for (int k = 0; tidy && k < 100; k++) {
        struct hb_rule rule = hb_rule_at(u, pc - (k != 0));
        uintptr_t cfa = sp + (uintptr_t)rule.off;
        for (int tries = 0; tries < 200 && (rule.kind != HB_RULE_SP || rule.off > 400); tries++) {
          if (k) *(uintptr_t *)(sp - 8) = pc = some_pc(u); else base.pc = pc = some_pc(u);
          rule = hb_rule_at(u, pc - (k != 0));
          cfa = sp + (uintptr_t)rule.off;
        }
        if (cfa + 8 > base.hi) break;
        if (rule.fp_kind == HB_FP_CFA) *(uintptr_t *)(cfa + (uintptr_t)(intptr_t)rule.fp) = (uintptr_t)(stack + next() % WORDS);
        *(uintptr_t *)(cfa - 8) = pc = some_pc(u);
        sp = cfa;
      }
    } else {
      for (int k = (int)(next() % 3); k > 0; k--) { /* the last one, a little different */
        uintptr_t *w = &stack[next() % WORDS];
        uint64_t at = 0; /* more often a word that matters */
        if (memory.depth && next() % 4 == 0) at = memory.f[next() % memory.depth].at;
        if (memory.depth && next() % 8 == 0 && memory.f[memory.depth - 1].reads) at = memory.read[next() % memory.f[memory.depth - 1].reads].at;
        if (memory.depth && next() % 16 == 0) at = memory.end.at;
        if (at >= base.lo && at < base.hi) w = (uintptr_t *)at;
        *w = next() & 1 ? some_pc(u) : next() & 1 ? (uintptr_t)(stack + next() % WORDS) : *w;
      }
      if (next() % 8 == 0) base.pc = some_pc(u);
      if (next() % 8 == 0) base.bp = (uintptr_t)(stack + next() % WORDS);
    }
    struct hb_cursor c = base;
    c.at = c.sp - 8;
    c.exact = next() % 4 == 0;
    c.how = c.exact ? HB_PC_EXACT : HB_PC_CALLER;
    uint64_t file[17];
    for (int i = 0; i < 17; i++) file[i] = (uintptr_t)(stack + next() % WORDS);
    c.file = file;
    if (c.exact) c.at = c.sp;
    int before = failures;
    take(u, &c);
    if (memory.depth > (uint32_t)deepest) deepest = memory.depth;
    if (failures > before) {
      fail("made up, round %d, tidy %d", r, tidy);
      return;
    }
  }
}

/* ---- a region with wrong bytes in it ---- */
static void wrong_tables(uintptr_t *stack) {
  const struct hb_region *h = (const struct hb_region *)test_tables.base;
  uint64_t used = h->bytes;
  while (used > 4096 && !((const uint64_t *)test_tables.base)[used / 8 - 1]) used -= 8;
  used = (used + 4095) & ~4095ull;
  char *copy = (char *)guarded(used);
  const struct hb_modules *l = hb_modules_adopt(&test_tables, 0, 1);
  uint64_t list = (uint64_t)((const char *)l - test_tables.base);
  long adopted = 0, refused = 0;
  for (int round = 0; round < 400; round++) {
    memcpy(copy, test_tables.base, used);
    ((struct hb_region *)copy)->bytes = used;
    const struct hb_module *m = hb_module_list(l);
    for (int k = 0; k < 8; k++) {
      uint64_t table = m[next() % l->count].table, at;
      switch (next() % 4) {
        case 0: at = table + next() % sizeof(struct hb_table_head); break;
        case 1: at = list + next() % (sizeof *l + l->count * sizeof *m); break;
        default: at = table + next() % 100000; break;
      }
      if (at < used) copy[at] = (char)next();
    }
    struct hb_tables t = {0};
    if (!hb_tables_open(&t, copy, used)) continue;
    const struct hb_modules *got = hb_modules_adopt(&t, 0, 1);
    if (!got) {
      refused++;
      continue;
    }
    adopted++;
    struct hb_unwind u = {.base = t.base, .modules = got, .rules = NULL};
    for (int k = 0; k < 20; k++) {
      struct hb_cursor c = {.lo = (uintptr_t)stack, .hi = (uintptr_t)(stack + WORDS), .pc = some_pc(&test_unwind_once), .sp = (uintptr_t)(stack + 40),
                            .bp = (uintptr_t)(stack + next() % WORDS), .how = HB_PC_CALLER, .at = (uintptr_t)(stack + 39)};
      struct hb_collect out = {frames, 0};
      struct hb_walked w = {0, 0, 0};
      for (int i = 0; i < WORDS; i++)
        if (next() % 3 == 0) stack[i] = some_pc(&test_unwind_once);
      hb_walk_table(&u, &c, &out, &w);
    }
  }
  if (!adopted || !refused) fail("wrong tables: %ld adopted, %ld refused", adopted, refused);
}

/* ---- deeper than a record ---- */
NOINLINE static int deep(int n) {
  volatile int pad[20];
  pad[0] = n;
  if (n == 0) {
    struct hb_unwind u = by_all();
    hook(&u, test_main_stack());
    return 0;
  }
  return deep(n - 1) + pad[0];
}

int main(void) {
  setvbuf(stdout, NULL, _IONBF, 0);
  if (!test_get_tables()) return 98;
  test_unwind_once = by_all();

  pthread_t t;
  pthread_create(&t, NULL, thread, NULL);
  pthread_join(t, NULL);
  check("thread", HB_WALK_OUTERMOST, 0);

  alternate.ss_size = 65536;
  alternate.ss_sp = malloc(alternate.ss_size);
  sigaltstack(&alternate, NULL);
  struct sigaction a;
  memset(&a, 0, sizeof a);
  a.sa_sigaction = on_signal;
  a.sa_flags = SA_SIGINFO;
  sigaction(SIGUSR1, &a, NULL);
  raising(SIGUSR1);
  check("signal", HB_WALK_OUTERMOST, 0);
  a.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGUSR1, &a, NULL);
  raising(SIGUSR1);
  check("signal on the alternate stack", HB_WALK_OUTERMOST, 0);
  struct { void *handler; unsigned long flags; void *restorer; uint64_t mask; } raw = {(void *)on_signal, SA_SIGINFO | SA_ONSTACK | 0x04000000, (void *)bare_restorer, 0};
  syscall(SYS_rt_sigaction, SIGUSR2, &raw, NULL, 8);
  raising(SIGUSR2);
  check("signal restorer without rows", HB_WALK_OUTERMOST, 0);

  a.sa_sigaction = on_tick;
  a.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGALRM, &a, NULL);
  spinning();
  if (!ticked)
    printf("the timer never hit the spinning function\n"), failures++;
  check("leaf without rows", HB_WALK_OUTERMOST, HB_STACK_GUESSED);
  if (walked.n < 2 || frames[1].pc >> HB_PC_SHIFT != HB_PC_GUESS) fail("leaf without rows: not by a guess");

  through_jit();

  for (known = 0; known < 2; known++) {
    getcontext(&inside);
    inside.uc_stack.ss_sp = coroutine_stack;
    inside.uc_stack.ss_size = sizeof coroutine_stack;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    swapcontext(&outside, &inside);
    check(known ? "coroutine" : "coroutine on an unknown stack", HB_WALK_OUTERMOST, 0);
  }

  leave_out(0);
  for (uint32_t i = 1; i < walked.n; i++)
    if ((frames[i].pc & HB_PC_BITS) - (uintptr_t)ours < 64) fail("our own frame is in the stack");
  check("frames left out", HB_WALK_OUTERMOST, 0);

  deep(5000);
  check("deep", HB_WALK_OUTERMOST, HB_STACK_OMITTED);
  if (walked.n != HB_MAX_FRAMES || walked.omitted < 5000 - HB_MAX_FRAMES) fail("deep: %u frames, %u omitted", walked.n, walked.omitted);

  uintptr_t *stack = guarded(WORDS * 8);
  struct hb_unwind u = by_all();
  made_up(&u, stack, 40000, 0);
  made_up(&u, stack, 40000, 1);
  if (deepest < 50) fail("made-up stacks were %ld deep at most", deepest);
  if (joins < 1000) fail("%ld made-up stacks were joined", joins);
  wrong_tables(stack);
  printf("%d failures, %ld joined, %ld deep\n", failures, joins, deepest);
  return failures > 90 ? 90 : failures;
}
