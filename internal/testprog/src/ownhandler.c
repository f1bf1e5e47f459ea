/* ownhandler: a handler of the program's own for the sampler's signal runs as it was installed: its flags, its mask,
 * its stack, how often, and what it does to a call. By each function that installs one. */
#include "check.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

extern int __sigaction(int, const struct sigaction *, struct sigaction *);
extern sighandler_t __sysv_signal(int, sighandler_t);
extern sighandler_t bsd_signal(int, sighandler_t);

static volatile int got, depth, deepest, on_alternate;
static sigset_t seen;
static char *alternate;
enum { ALTERNATE = 65536 };
static sigjmp_buf out;
static volatile int jumps, again;

static void look(int sig) {
  char here;
  CHECK(sig == SIGURG);
  got++;
  on_alternate = &here >= alternate && &here < alternate + ALTERNATE;
  CHECK(sigprocmask(SIG_BLOCK, NULL, &seen) == 0);
  if (++depth > deepest)
    deepest = depth;
  if (again) {
    again = 0;
    raise(SIGURG);
  }
  depth--;
  if (jumps) {
    jumps = 0;
    depth = 0;
    siglongjmp(out, 1);
  }
}
static void look_info(int sig, siginfo_t *si, void *uc) {
  CHECK(si && uc && si->si_signo == SIGURG);
  look(sig);
}

static int count(const sigset_t *s) {
  int n = 0;
  for (int i = 1; i < 65; i++)
    n += sigismember(s, i) == 1;
  return n;
}

static int pipefd[2];
static pthread_t victim;
static volatile pid_t victim_tid;
static volatile int sent, over;
static void *sends(void *arg) {
  await_asleep(victim_tid);
  for (int before = got; got == before && !over;) { /* until one fell into the call */
    CHECK_RC(pthread_kill(victim, SIGURG), 0);
    usleep(2000);
  }
  usleep(20000);
  sent = 1;
  CHECK(write(pipefd[1], "x", 1) == 1);
  return arg;
}

/* What a read does that the signal meets. */
static void reads(const char *name) {
  pthread_t t;
  char c;
  victim = pthread_self();
  victim_tid = gettid();
  sent = over = 0;
  CHECK_RC(pthread_create(&t, NULL, sends, NULL), 0);
  errno = 0;
  ssize_t r = read(pipefd[0], &c, 1);
  printf("%s: read %s", name, r == 1 ? "goes on" : errno == EINTR ? "EINTR" : "?");
  over = 1;
  CHECK_RC(pthread_join(t, NULL), 0);
  if (r != 1)
    CHECK(read(pipefd[0], &c, 1) == 1);
  printf("; %d blocked in it, depth %d, %s stack\n", count(&seen), deepest, on_alternate ? "alternate" : "own");
  deepest = 0;
}

static void state(const char *name) {
  struct sigaction now, raw[2];
  sigset_t mask;
  CHECK(sigaction(SIGURG, NULL, &now) == 0);
  CHECK(sigprocmask(SIG_BLOCK, NULL, &mask) == 0);
  printf("%s: %s flags %#x mask %d; %d blocked\n", name,
         now.sa_handler == SIG_DFL ? "default" : now.sa_handler == SIG_IGN ? "ignored" : now.sa_handler == look ? "look" : "info",
         (unsigned)now.sa_flags & ~0x04000000u, count(&now.sa_mask), count(&mask));
  CHECK(syscall(SYS_rt_sigaction, SIGURG, NULL, raw, 8) == 0);
  CHECK(raw[0].sa_handler == now.sa_handler); /* the kernel says so, too */
}

int main(int argc, char **argv) {
  /* "kept": the sampler has no other signal to go to. */
  CHECK(argc < 2 || (strcmp(argv[1], "kept") == 0 && signal(SIGWINCH, look) == SIG_DFL));
  CHECK(pipe(pipefd) == 0);
  alternate = malloc(ALTERNATE);
  stack_t st = {.ss_sp = alternate, .ss_size = ALTERNATE};
  CHECK(sigaltstack(&st, NULL) == 0);
  static const unsigned flags[] = {0, SA_RESTART, SA_ONSTACK, SA_NODEFER, SA_SIGINFO | SA_RESTART, SA_RESTART | SA_ONSTACK | SA_NODEFER};
  for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
    char name[40];
    snprintf(name, sizeof name, "sigaction %#x", flags[i]);
    struct sigaction sa = {.sa_flags = (int)flags[i]};
    sigaddset(&sa.sa_mask, SIGUSR2);
    if (flags[i] & SA_SIGINFO)
      sa.sa_sigaction = look_info;
    else
      sa.sa_handler = look;
    CHECK((i % 2 ? __sigaction : sigaction)(SIGURG, &sa, NULL) == 0);
    burn_ns(2000000);
    state(name);
    reads(name);
    again = 1;
    CHECK(raise(SIGURG) == 0);
    printf("  nested: %d\n", deepest);
    deepest = 0;
    if (sigsetjmp(out, 0) == 0) { /* the mask stays the handler's */
      jumps = 1;
      raise(SIGURG);
    }
    state("  after a jump");
    sigset_t none;
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
    got = 0;
  }
  struct sigaction once = {.sa_handler = look, .sa_flags = (int)SA_RESETHAND};
  CHECK(sigaction(SIGURG, &once, NULL) == 0);
  burn_ns(2000000);
  for (int i = 0; i < 3; i++)
    CHECK(raise(SIGURG) == 0);
  printf("once: %d\n", got);
  state("once");

  struct {
    const char *name;
    sighandler_t (*set)(int, sighandler_t);
  } olds[] = {{"signal", signal}, {"bsd_signal", bsd_signal}, {"ssignal", ssignal}, {"sysv_signal", sysv_signal}, {"__sysv_signal", __sysv_signal}, {"sigset", sigset}};
  for (unsigned i = 0; i < sizeof olds / sizeof *olds; i++) {
    for (int ends = 0; ends < 2; ends++) {
      CHECK(siginterrupt(SIGURG, ends) == 0);
      sighandler_t was = olds[i].set(SIGURG, look);
      printf("%s was %s\n", olds[i].name, was == SIG_DFL ? "default" : was == SIG_IGN ? "ignored" : was == look ? "look" : "?");
      state(olds[i].name);
      got = 0;
      if (i < 3)
        reads(olds[i].name);
      burn_ns(1000000);
      for (int k = 0; k < 3; k++)
        CHECK(raise(SIGURG) == 0);
      state("  then");
      CHECK(siginterrupt(SIGURG, !ends) == 0);
      state("  siginterrupt");
      CHECK(signal(SIGURG, SIG_DFL) != SIG_ERR);
    }
  }
  siginterrupt(SIGURG, 0);
  CHECK(signal(SIGURG, look) == SIG_DFL);
  printf("hold: %d", sigset(SIGURG, SIG_HOLD) == look);
  got = 0;
  CHECK(raise(SIGURG) == 0);
  printf(" %d", got);
  printf(" %d", sigset(SIGURG, look) == SIG_HOLD);
  printf(" %d\n", got);
  CHECK(sigignore(SIGURG) == 0);
  state("sigignore");
  CHECK(signal(SIGURG, SIG_ERR) == SIG_ERR && errno == EINVAL);
  CHECK(signal(SIGURG, SIG_DFL) == SIG_IGN);
  burn_ns(5000000);
  puts("ownhandler ok");
  return 0;
}
