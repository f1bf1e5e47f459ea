/* arm64.c: stacks of an arm64 program whose return addresses are signed, walked at a signal: in a leaf that has no frame,
 * through libc's qsort, and through two signal frames. Prints what fails; exits with the number of failures. */
#include "inside.h"

#include <sys/time.h>

#define NOINLINE __attribute__((noinline, noclone))
static struct hb_rules rules;
static struct hb_frame frames[HB_MAX_FRAMES];
static struct hb_memory memory;
static struct hb_taken scratch;
static uintptr_t wanted[512]; /* return addresses, outermost first */
static volatile int wants, settled;
static int failures, walks, joins, signed_;
static volatile long sink;

static void walk(const void *uc) {
  struct hb_unwind u = test_unwind(&rules);
  struct hb_cursor from, c;
  struct hb_walked w = {0, 0, 0}, w2 = {0, 0, 0};
  struct hb_collect out = {frames, 0};
  hb_cursor_signal(&from, uc, test_main_stack());
  c = from;
  hb_collect_add(&out, hb_pc(c.how, c.pc), c.at);
  enum hb_walk_end end = hb_walk_table(&u, &c, &out, &w);
  hb_collect_end(&out, &w);
  int k = wants;
  uint32_t i = 0, matched = 0;
  for (; i < w.n && k; i++)
    if ((frames[i].pc & HB_PC_BITS) == wanted[k - 1]) k--, matched++;
  walks++;
  if (k || end != HB_WALK_OUTERMOST || w.flags) {
    printf("%u of %d frames found in %u; end %d, flags %u\n", matched, wants, w.n, end, w.flags);
    for (i = 0; i < w.n; i++) printf(" %llx", (unsigned long long)frames[i].pc);
    putchar('\n');
    failures++;
  }
  struct hb_verified v;
  c = from;
  hb_walk_verify(&u, &c, &memory, &scratch, &w2, &v);
  joins += v.end == HB_WALK_JOINED;
  hb_memory_keep(&memory, &u, &c, &scratch, &v);
  int same = w2.n == w.n && memory.depth == w.n;
  for (i = 0; same && i < w.n; i++)
    same = memory.f[w.n - 1 - i].pc == frames[i].pc && memory.f[w.n - 1 - i].at == frames[i].at;
  if (!same) {
    printf("verified: %u frames, walked: %u\n", w2.n, w.n);
    failures++;
  }
}

static void on_alarm(int sig, siginfo_t *si, void *uc) {
  (void)sig, (void)si;
  if (settled) {
    walk(uc);
    settled = 2;
  }
}
static void on_usr1(int sig, siginfo_t *si, void *uc) {
  (void)sig, (void)si, (void)uc;
  if (sig == SIGUSR1) raise(SIGUSR2);
  else walk(uc);
  sink++;
}

/* Returns address and the word that it was read from. */
#define ENTER() (wanted[wants++] = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)) & ((1ull << 48) - 1))
#define LEAVE() (wants--)

NOINLINE static void leaf(void) { /* no frame: the return address stays in x30 */
  settled = 1;
  for (long n = 0; settled != 2 && n < 2000000000; n++) __asm__ volatile("");
  settled = 0;
}
NOINLINE static int deep(int n) {
  volatile char pad[40];
  ENTER();
  pad[n % 40] = 1;
  if (n) deep(n - 1);
  else leaf();
  LEAVE();
  return pad[n % 40];
}
static int compare(const void *a, const void *b) {
  static int calls;
  ENTER();
  if (calls++ % 16 == 0) deep(calls % 7);
  LEAVE();
  return *(const int *)a - *(const int *)b;
}
NOINLINE static void sorting(void) {
  int v[64];
  ENTER();
  for (int i = 0; i < 64; i++) v[i] = i * 7919 % 64;
  qsort(v, 64, sizeof v[0], compare);
  sink += v[3];
  LEAVE();
}
NOINLINE static void raising(void) {
  ENTER();
  raise(SIGUSR1);
  sink++;
  LEAVE();
}
/* Is a return address signed where it lies? Only if processor and compiler agreed to. */
NOINLINE static void look(void) {
  const uintptr_t *f = __builtin_frame_address(0);
  signed_ = f[1] >> 48 != 0;
  sink++;
}

int main(void) {
  if (!test_get_tables()) return 100;
  struct sigaction sa = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
  sigaction(SIGALRM, &sa, NULL);
  sa.sa_sigaction = on_usr1;
  sigaction(SIGUSR1, &sa, NULL);
  sigaction(SIGUSR2, &sa, NULL);
  struct itimerval every = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every, NULL);
  look();
  for (int i = 0; i < 20; i++) deep(i);
  sorting();
  struct itimerval off = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &off, NULL);
  for (int i = 0; i < 3; i++) raising();
  printf("%d failures, %d walks, %d joined, signed %d\n", failures, walks, joins, signed_);
  return failures || walks < 25 || !joins;
}
