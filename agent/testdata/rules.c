//go:build ignore

/* rules.c: the rules of syscallproxy/proxy.h, one scenario each, with this program as the sampler: what it announces, sends,
 * sends late or never sends is decided here, so that each case comes every time. Usage: rules ROUNDS. Exits 0 when all held. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "syscallproxy/proxy.h"

#define CHECK(c)                                                         \
  do {                                                                   \
    if (!(c)) {                                                          \
      fprintf(stderr, "rules.c:%d: %s does not hold\n", __LINE__, #c); \
      _exit(1);                                                          \
    }                                                                    \
  } while (0)

static struct hb_thread slot;
static struct hb_proc process;
static struct hb_wiped wiped;
static char frames[3]; /* three frames, by address: the first is the deepest */
static volatile sig_atomic_t handled, others, consumed;
static struct hb_block inner;

static union hb_siginfo_whole back[2];
static uint32_t backs, back_blocked;
static void hb_foreign_back(const struct hb_tls *t, const union hb_siginfo_whole *held, uint32_t n, int blocked_) {
  (void)t;
  back_blocked = (uint32_t)blocked_;
  for (uint32_t i = 0; i < n; i++) back[backs++ % 2] = held[i];
}
static void hb_emit_unwound(struct hb_tls *t, struct hb_thread *s) { (void)t, (void)s; }
static void hb_take_sample(struct hb_tls *t, uint32_t ask, uint32_t hook, const void *uc, const void *frame,
                           uint32_t rec_flags, uint64_t cpu) {
  (void)t, (void)ask, (void)hook, (void)uc, (void)frame, (void)cpu;
  CHECK(rec_flags == HB_RECF_CONSUMED);
  consumed++;
}

/* The sampler's signal, delivered: as sampler/handler.h does. */
static void hb_on_signal(int sig, struct hb_siginfo *info, void *uc) {
  (void)sig, (void)info, (void)uc;
  handled++;
  if (hb_load_acquire(&slot.state) == HB_SIGNALLED) hb_store_release(&slot.state, (uint32_t)HB_RUNNING);
}

/* A handler of the target that makes a call which can sleep. */
static void on_other(int sig) {
  (void)sig;
  others++;
  hb_block_enter(hb_self(), &slot, &inner, &frames[0]);
  hb_block_leave(hb_self(), &slot, &inner);
}

static void send_ours_to(long tid) {
  union hb_siginfo_whole w = {.info = {.signo = SIGURG, .code = HB_SI_QUEUE, .value = (int32_t)(hb.cookie | HB_ASK_GAP)}};
  CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, SIGURG, &w) == 0);
}
static void send_ours(void) { send_ours_to(syscall(SYS_gettid)); }
static int blocked(int sig) {
  sigset_t now;
  CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
  return sigismember(&now, sig);
}
static uint32_t state(void) { return hb_load_acquire(&slot.state); }

static void fresh(uint32_t rest) {
  struct hb_tls *t = hb_self();
  *t = (struct hb_tls){.slot = &slot, .rest = rest, .tid = (uint32_t)syscall(SYS_gettid)};
  hb_store_relaxed(&hb.unsent, 0u);
  hb_store_release(&slot.state, rest);
  handled = others = consumed = 0;
}
static void enter(struct hb_block *b, int frame) { hb_block_enter(hb_self(), &slot, b, &frames[frame]); }
static void leave(struct hb_block *b) { hb_block_leave(hb_self(), &slot, b); }

static void undisturbed(void) {
  struct hb_block b;
  fresh(HB_RUNNING);
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && !b.passive);
  leave(&b);
  CHECK(state() == HB_RUNNING && hb_self()->outer.sp == 0 && hb_self()->proxy_depth == 0);
}

/* Announced, and pending already while the target has the signal blocked for a moment: taken at the entry, no handler runs. */
static void in_flight(void) {
  struct hb_block b;
  sigset_t ours;
  fresh(HB_RUNNING);
  sigemptyset(&ours);
  sigaddset(&ours, SIGURG);
  CHECK(pthread_sigmask(SIG_BLOCK, &ours, NULL) == 0);
  hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
  send_ours();
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && consumed == 1 && blocked(SIGURG) && b.waited > 0);
  CHECK(pthread_sigmask(SIG_UNBLOCK, &ours, NULL) == 0);
  CHECK(handled == 0); /* nothing is left of it that could end the call */
  leave(&b);
  CHECK(state() == HB_RUNNING);
}

static void *late_sender(void *arg) {
  struct timespec t = {0, 20000000};
  nanosleep(&t, NULL);
  CHECK(syscall(SYS_tgkill, getpid(), *(long *)arg, SIGALRM) == 0); /* the target's own comes first */
  send_ours_to(*(long *)arg);
  return NULL;
}

/* Rule 1: while a signal that was announced is waited for no handler of the target runs; it would wait for the same. Returns 0
 * when the machine was too busy for the signals to come while they were waited for. */
static int all_signals_wait(void) {
  struct hb_block b;
  pthread_t th;
  long me = syscall(SYS_gettid);
  fresh(HB_RUNNING);
  hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
  CHECK(pthread_create(&th, NULL, late_sender, &me) == 0);
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && !b.passive);
  CHECK(pthread_join(th, NULL) == 0);
  int in_time = consumed == 1; /* otherwise they came before the call, or long after */
  if (in_time) CHECK(others == 1 && inner.passive && handled == 0); /* the other's handler ran, after ours was taken, and nested */
  leave(&b);
  CHECK(state() == HB_RUNNING);
  return in_time;
}

/* Rule 3: a call inside another's handler is nested and changes nothing; one above a call that a jump has left begins anew. */
static void nested_and_stale(void) {
  struct hb_block outer, b;
  fresh(HB_RUNNING);
  enter(&outer, 1);
  enter(&b, 0);
  CHECK(b.passive && state() == HB_BLOCKED && hb_self()->outer.sp == (uintptr_t)&frames[1]);
  leave(&b);
  CHECK(state() == HB_BLOCKED && hb_self()->outer.sp == (uintptr_t)&frames[1] && hb_self()->proxy_depth == 1);
  enter(&b, 2); /* a siglongjmp left `outer` */
  CHECK(!b.passive && state() == HB_BLOCKED && hb_self()->outer.sp == (uintptr_t)&frames[2] && hb_self()->proxy_depth == 1);
  leave(&b);
  CHECK(state() == HB_RUNNING && hb_self()->proxy_depth == 0);
}

/* Rule 4: another thread's slot, as a vfork child's is on its parent's memory: passed by, and left as it was. */
static void anothers(void) {
  struct hb_block b;
  fresh(HB_RUNNING);
  hb_self()->tid++;
  hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
  enter(&b, 1);
  CHECK(b.passive && state() == HB_SIGNALLED && consumed == 0 && !blocked(SIGURG));
  leave(&b);
  CHECK(state() == HB_SIGNALLED);
}

/* Rule 6: nothing is entered any more after EXITED. */
static void exited(void) {
  struct hb_block b;
  fresh(HB_RUNNING);
  hb_store_release(&slot.state, (uint32_t)HB_EXITED);
  enter(&b, 1);
  CHECK(b.passive && state() == HB_EXITED);
  leave(&b);
  CHECK(state() == HB_EXITED);
}

/* Rule 7: announced by a sampler that died before it sent. The wait ends; should the signal come after all it finds itself
 * masked, and the call is not ended early. */
static void never_sent(void) {
  struct hb_block b;
  int p[2];
  char c;
  fresh(HB_RUNNING);
  hb_store_relaxed(&process.signals_stray, (uint64_t)0);
  hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && b.unmask && blocked(SIGURG) && consumed == 0);
  CHECK(hb_load_relaxed(&process.signals_stray) == 1);
  CHECK(pipe(p) == 0);
  send_ours();
  CHECK(write(p[1], "x", 1) == 1 && read(p[0], &c, 1) == 1);
  CHECK(handled == 0);
  leave(&b);
  CHECK(handled == 1 && state() == HB_RUNNING && !blocked(SIGURG)); /* taken for a stray behind the call */
  CHECK(close(p[0]) == 0 && close(p[1]) == 0);
}

/* The other half of rule 7: sending failed, and the sampler takes its announcement back while it is waited for. */
static void *takes_back(void *arg) {
  struct timespec t = {0, 20000000};
  uint32_t x = HB_SIGNALLED;
  nanosleep(&t, NULL);
  hb_cas_seq(&slot.state, &x, (uint32_t)HB_RUNNING); /* unless it came too late */
  return arg;
}
static int taken_back(void) { /* as there */
  struct hb_block b;
  pthread_t th;
  fresh(HB_RUNNING);
  hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
  CHECK(pthread_create(&th, NULL, takes_back, NULL) == 0);
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && consumed == 0 && blocked(SIGURG) == (int)b.unmask);
  CHECK(pthread_join(th, NULL) == 0);
  leave(&b);
  CHECK(state() == HB_RUNNING);
  return !b.unmask;
}

/* Until it was in time, on a machine that may be busy. */
static void in_time(int (*scenario)(void)) {
  for (int i = 0; i < 100; i++)
    if (scenario()) return;
  CHECK(!"in time");
}

/* Rule 10: one that is not ours is not taken for ours, also when ours was lost because that waited in its place; it goes on to where
 * it was to go. */
static void foreign(int ours_too) {
  struct hb_block b;
  sigset_t urg;
  fresh(HB_RUNNING);
  backs = 0;
  hb_store_relaxed(&process.signals_stray, (uint64_t)0);
  sigemptyset(&urg);
  sigaddset(&urg, SIGURG);
  CHECK(pthread_sigmask(SIG_BLOCK, &urg, NULL) == 0);
  hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
  CHECK(kill(getpid(), SIGURG) == 0); /* waits in the process, ours in the thread */
  if (ours_too) send_ours();
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && !b.passive && !b.unmask);
  CHECK(consumed == ours_too && hb_load_relaxed(&process.signals_stray) == 0);
  sigset_t pending;
  CHECK(sigpending(&pending) == 0);
  if (backs) CHECK(backs == 1 && back_blocked && back[0].info.code == 0 && back[0].info.pid == getpid() && !sigismember(&pending, SIGURG));
  else CHECK(ours_too && sigismember(&pending, SIGURG)); /* ours came first, and nothing else was looked at */
  struct timespec none = {0, 0};
  while (sigtimedwait(&urg, NULL, &none) == SIGURG) {}
  leave(&b);
  CHECK(pthread_sigmask(SIG_UNBLOCK, &urg, NULL) == 0);
  CHECK(state() == HB_RUNNING && handled == 0);
}

/* Rule 11: where another handler has taken the place of ours nothing is waited for, from then on in any call. */
static void replaced(void) {
  struct hb_block b;
  struct sigaction theirs = {.sa_handler = on_other}, ours;
  CHECK(sigaction(SIGURG, &theirs, &ours) == 0);
  hb_store_relaxed(&process.signals_stray, (uint64_t)0);
  hb_store_relaxed(&process.flags, 0u);
  for (int i = 0; i < 3; i++) {
    fresh(HB_RUNNING);
    hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
    enter(&b, 1);
    CHECK(state() == HB_BLOCKED && !b.passive && !b.unmask && !blocked(SIGURG));
    leave(&b);
    CHECK(state() == HB_RUNNING);
    CHECK(hb_load_relaxed(&process.signals_stray) == 0 && hb_load_relaxed(&process.flags) & HB_PROCF_SYNC_ONLY);
  }
  CHECK(sigaction(SIGURG, &ours, NULL) == 0);
  hb_store_relaxed(&hb.given_up, 0u);
}

/* Rule 3 on other stacks: a handler on the alternate one is nested wherever that lies, and a call from the thread's own stack while
 * one is published that was made on the alternate one begins anew. */
static void stacks(void) {
  static char room[65536];
  struct hb_block outer, b;
  stack_t alternate = {.ss_sp = room, .ss_size = sizeof room}, none = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(&alternate, NULL) == 0);
  for (int high = 0; high < 2; high++) {
    char own[64]; /* the thread's stack, of which three frames lie below the alternate one, or above */
    char *lo = high ? own : &frames[0], *on = room + 30000;
    fresh(HB_RUNNING);
    hb_self()->stack_lo = (uintptr_t)lo;
    hb_self()->stack_hi = (uintptr_t)lo + 3;
    hb_block_enter(hb_self(), &slot, &outer, lo + 1);
    hb_block_enter(hb_self(), &slot, &b, on);
    CHECK(b.passive && state() == HB_BLOCKED);
    leave(&b);
    CHECK(state() == HB_BLOCKED && hb_self()->outer.sp == (uintptr_t)lo + 1);
    leave(&outer);
    hb_block_enter(hb_self(), &slot, &outer, on);
    CHECK(!outer.passive);
    hb_block_enter(hb_self(), &slot, &b, lo + 1); /* a siglongjmp left `outer` */
    CHECK(!b.passive && hb_self()->outer.sp == (uintptr_t)lo + 1 && hb_self()->proxy_depth == 1);
    leave(&b);
    CHECK(state() == HB_RUNNING);
  }
  CHECK(sigaltstack(&none, NULL) == 0);
  fresh(HB_RUNNING);
}

/* A thread that has the signal blocked rests in MASKED, and comes back to it. */
static void masked(void) {
  struct hb_block b;
  fresh(HB_MASKED);
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && !b.passive);
  leave(&b);
  CHECK(state() == HB_MASKED);
}

/* Rule 9: what is no state is put right; announcements that never come true are believed for 0.4 s in all. */
static void nonsense(void) {
  struct hb_block b;
  fresh(HB_RUNNING);
  hb_store_release(&slot.state, 77u);
  enter(&b, 1);
  CHECK(state() == HB_BLOCKED && !b.passive);
  leave(&b);
  CHECK(state() == HB_RUNNING);
  uint32_t tries = 0;
  for (int i = 0; i < 100; i++) {
    tries += hb_consume_tries();
    hb_store_release(&slot.state, (uint32_t)HB_SIGNALLED);
    enter(&b, 1);
    CHECK(state() == HB_BLOCKED && b.unmask);
    leave(&b);
  }
  CHECK(tries < 2 * HB_CONSUME_TRIES && hb_consume_tries() == 0);
}

/* Somebody writes states all the time. No entry hangs, and no mask stays changed. */
static _Atomic int scribbling;
static void *scribbles(void *arg) {
  for (uint32_t x = 1; hb_load_relaxed(&scribbling); x = x * 1664525u + 1013904223u)
    hb_store_release(&slot.state, x >> 24 < 240 ? x >> 16 & 7 : x);
  return arg;
}
static void scribbled(void) {
  pthread_t th;
  fresh(HB_RUNNING);
  hb_store_relaxed(&scribbling, 1);
  CHECK(pthread_create(&th, NULL, scribbles, NULL) == 0);
  for (int i = 0; i < 20000; i++) {
    struct hb_block b;
    enter(&b, 1);
    leave(&b);
    CHECK(hb_self()->outer.sp == 0 && hb_self()->proxy_depth == 0);
  }
  hb_store_relaxed(&scribbling, 0);
  CHECK(pthread_join(th, NULL) == 0);
  CHECK(!blocked(SIGURG) && !blocked(SIGALRM));
}

int main(void) {
  hb.slot = &process;
  hb.wiped = &wiped;
  hb.signal = SIGURG;
  hb.cookie = 0x4b7d00;
  struct sigaction ours = {.sa_flags = SA_RESTART | SA_SIGINFO}, other = {.sa_handler = on_other};
  *(void **)&ours.sa_sigaction = (void *)hb_on_signal;
  sigfillset(&ours.sa_mask);
  CHECK(sigaction(SIGURG, &ours, NULL) == 0 && sigaction(SIGALRM, &other, NULL) == 0);
  undisturbed();
  in_flight();
  in_time(all_signals_wait);
  nested_and_stale();
  anothers();
  exited();
  never_sent();
  in_time(taken_back);
  masked();
  nonsense();
  scribbled();
  puts("all rules hold");
  return 0;
}
