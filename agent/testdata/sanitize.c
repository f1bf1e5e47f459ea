//go:build ignore

/* sanitize.c: the parts of the agent that several threads and processes share, run hard under AddressSanitizer,
 * UndefinedBehaviorSanitizer and ThreadSanitizer: the ring's producer against a reader, and the state word's handshake
 * (syscallproxy/proxy.h) against a sampler. Usage: sanitize ring|handshake|signals ROUNDS. Exits 0 when all held. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "concurrentring/producer.h"
#include "syscallproxy/proxy.h"

#define CHECK(c)                                                    \
  do {                                                              \
    if (!(c)) {                                                     \
      fprintf(stderr, "sanitize.c:%d: %s does not hold\n", __LINE__, #c); \
      _exit(1);                                                     \
    }                                                               \
  } while (0)

enum { PRODUCERS = 6, SUBBUFS = 4, CAP = 1 << 14, RECORDS = 96 };

static long rounds;
static struct hb_subbuf subbufs[SUBBUFS];
static struct hb_thread slots[PRODUCERS];
static struct hb_proc process;
static struct hb_wiped wiped;
static _Atomic long taken, sent, dropped, samples;
static _Atomic int finished;

static uint64_t payload(uint32_t uid, uint32_t seq, uint32_t at) {
  return ((uint64_t)uid << 40 ^ (uint64_t)seq << 8 ^ at) * 0x9e3779b97f4a7c15ull;
}

/* ---- the ring ---- */

static void put_one(struct hb_tls *t) {
  uint64_t buf[RECORDS];
  struct hb_frame frames[8];
  struct hb_rec *r = (struct hb_rec *)buf;
  uint32_t words = 4 + (t->seq * 7 + t->uid) % (RECORDS - 12), n = t->seq % 8, head = sizeof *r / 8;
  memset(r, 0, sizeof *r);
  r->type = HB_REC_SAMPLE;
  r->thread = t->uid;
  r->seq = t->seq++;
  if (words < head + 1) words = head + 1;
  for (uint32_t i = head; i < words; i++) buf[i] = payload(t->uid, r->seq, i);
  for (uint32_t i = 0; i < n; i++) frames[i].pc = payload(t->uid, r->seq, 1000 + i);
  atomic_fetch_add(&sent, 1);
  if (!hb_ring_put(t, r, words * 8, frames, n)) atomic_fetch_add(&dropped, 1);
}

static void *producer(void *arg) {
  struct hb_tls *t = hb_self();
  memset(t, 0, sizeof *t);
  t->uid = (uint32_t)(intptr_t)arg + 1;
  t->subbuf = t->uid % SUBBUFS;
  for (long i = 0; i < rounds; i++) {
    put_one(t);
    if (i % 64 == 0) sched_yield();
  }
  return NULL;
}

static uint32_t next_seq[SUBBUFS][PRODUCERS + 1];

static void drain(void) {
  for (int k = 0; k < SUBBUFS; k++) {
    uint64_t head = hb_load_acquire(&subbufs[k].head), tail = hb_load_relaxed(&subbufs[k].tail);
    while (tail < head) {
      uint64_t off = tail & (CAP - 1);
      const uint64_t *w = (const uint64_t *)(hb.ring + (uint64_t)k * CAP + off);
      const struct hb_rec *r = (const struct hb_rec *)w;
      CHECK(r->bytes >= 8 && r->bytes % 8 == 0 && r->bytes <= CAP - off);
      if (r->type != HB_REC_PAD) {
        CHECK(r->thread >= 1 && r->thread <= PRODUCERS);
        CHECK(r->seq >= next_seq[k][r->thread]); /* in order, with what went elsewhere left out */
        next_seq[k][r->thread] = r->seq + 1;
        uint32_t n = r->seq % 8, words = r->bytes / 8 - n;
        for (uint32_t i = sizeof *r / 8; i < words; i++) CHECK(w[i] == payload(r->thread, r->seq, i));
        for (uint32_t i = 0; i < n; i++) CHECK(w[words + i] == payload(r->thread, r->seq, 1000 + n - 1 - i));
        atomic_fetch_add(&taken, 1);
      }
      tail += r->bytes;
    }
    CHECK(tail == head);
    hb_store_release(&subbufs[k].tail, tail);
  }
}

static void *reader(void *arg) {
  while (!atomic_load(&finished)) {
    drain();
    sched_yield();
  }
  drain();
  return arg;
}

static void ring(void) {
  pthread_t p[PRODUCERS], r;
  CHECK(pthread_create(&r, NULL, reader, NULL) == 0);
  for (intptr_t i = 0; i < PRODUCERS; i++) CHECK(pthread_create(&p[i], NULL, producer, (void *)i) == 0);
  for (int i = 0; i < PRODUCERS; i++) CHECK(pthread_join(p[i], NULL) == 0);
  atomic_store(&finished, 1);
  CHECK(pthread_join(r, NULL) == 0);
  CHECK(atomic_load(&taken) + atomic_load(&dropped) == atomic_load(&sent));
  CHECK(atomic_load(&taken) > 0);
  /* control words that a broken target scribbled on cost records, never a write outside */
  struct hb_tls *t = hb_self();
  t->uid = 1;
  static const uint64_t wild[] = {0, 1, 7, CAP - 1, CAP + 1, 1ull << 40, UINT64_MAX, UINT64_MAX - 7, 1ull << 63};
  for (unsigned a = 0; a < sizeof wild / sizeof *wild; a++)
    for (unsigned b = 0; b < sizeof wild / sizeof *wild; b++) {
      for (int k = 0; k < SUBBUFS; k++) {
        hb_store_relaxed(&subbufs[k].head, wild[a]);
        hb_store_relaxed(&subbufs[k].tail, wild[b]);
      }
      t->subbuf = a * 1000003u;
      put_one(t);
    }
}

/* ---- the handshake ---- */

static __thread volatile sig_atomic_t in_call;

static void hb_emit_unwound(struct hb_tls *t, struct hb_thread *s) { (void)t, (void)s; }
static void hb_foreign_back(const struct hb_tls *t, const union hb_siginfo_whole *held, uint32_t n, int blocked) {
  (void)t, (void)held, (void)n, (void)blocked;
  CHECK(!"a signal that is not ours");
}
static void hb_take_sample(struct hb_tls *t, uint32_t ask, uint32_t hook, const void *uc, const void *frame, uint32_t flags,
                           uint64_t cpu) {
  (void)t, (void)ask, (void)hook, (void)uc, (void)frame, (void)flags, (void)cpu;
  atomic_fetch_add(&samples, 1);
}

/* the handler of sampler/handler.h, as far as the state goes */
static void hb_on_signal(int sig, struct hb_siginfo *info, void *uc) {
  struct hb_thread *s = hb_self()->slot;
  (void)sig, (void)info, (void)uc;
  if (!s || hb_load_acquire(&s->state) != HB_SIGNALLED) return;
  CHECK(!in_call);
  atomic_fetch_add(&samples, 1);
  hb_store_release(&s->state, (uint32_t)HB_RUNNING);
}

static __attribute__((noinline)) void one_call(struct hb_tls *t, struct hb_thread *s, int depth) {
  struct hb_block b;
  hb_block_enter(t, s, &b, HB_FRAME);
  int outer = in_call;
  in_call = 1;
  CHECK(hb_load_relaxed(&s->state) == HB_BLOCKED);
  struct timespec ts = {0, 1000};
  if (depth == 0) CHECK(clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL) == 0); /* an EINTR would be the sampler's */
  else one_call(t, s, depth - 1); /* a handler of the target that calls a wrapped function */
  in_call = outer;
  hb_block_leave(t, s, &b);
}

static void *caller(void *arg) {
  struct hb_tls *t = hb_self();
  struct hb_thread *s = &slots[(intptr_t)arg];
  memset(t, 0, sizeof *t);
  t->slot = s;
  t->rest = HB_RUNNING;
  t->tid = s->tid = (uint32_t)syscall(SYS_gettid);
  hb_store_release(&s->uid, (uint32_t)(intptr_t)arg + 1);
  hb_store_release(&s->state, (uint32_t)HB_RUNNING);
  /* until the sampler has had its chance, too: on a loaded machine it may start late */
  for (long i = 0; i < rounds || (!atomic_load(&samples) && i < rounds * 1000); i++) {
    for (volatile int k = 0; k < 2000; k++)
      ;
    one_call(t, s, i % 4 == 0);
    CHECK(hb_load_relaxed(&s->state) != HB_BLOCKED && t->proxy_depth == 0);
  }
  struct hb_block b;
  memset(&b, 0, sizeof b);
  hb_block_slow(t, s, hb_outer_at(HB_FRAME), HB_EXITED, &b, HB_FRAME);
  CHECK(hb_load_acquire(&s->state) == HB_EXITED);
  t->slot = NULL;
  return NULL;
}

static void *sampler(void *arg) {
  while (!atomic_load(&finished))
    for (int i = 0; i < PRODUCERS; i++) {
      uint32_t x = HB_RUNNING;
      if (!hb_load_acquire(&slots[i].uid) || !hb_cas_seq(&slots[i].state, &x, (uint32_t)HB_SIGNALLED)) continue;
      siginfo_t info;
      memset(&info, 0, sizeof info);
      info.si_code = SI_QUEUE;
      info.si_pid = getpid();
      if (syscall(SYS_rt_tgsigqueueinfo, getpid(), slots[i].tid, (int)hb.signal, &info) != 0) {
        x = HB_SIGNALLED; /* rule 7 */
        hb_cas_seq(&slots[i].state, &x, (uint32_t)HB_RUNNING);
      }
      sched_yield();
    }
  return arg;
}

/* blocked: the signal is never delivered, always consumed: what ThreadSanitizer, which delays signals, can follow */
static void handshake(int blocked) {
  pthread_t c[PRODUCERS], s;
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, (int)hb.signal);
  /* By the kernel's own call: the sanitizers' puts a handler of theirs in the place of ours. */
  struct hb_sigaction a = {(void *)hb_on_signal, SA_RESTART | SA_SIGINFO | HB_SA_RESTORER, (void *)hb_restorer, ~0ull};
  CHECK(syscall(SYS_rt_sigaction, (int)hb.signal, &a, NULL, 8) == 0);
  if (blocked) CHECK(pthread_sigmask(SIG_BLOCK, &ours, NULL) == 0);
  for (intptr_t i = 0; i < PRODUCERS; i++) CHECK(pthread_create(&c[i], NULL, caller, (void *)i) == 0);
  CHECK(pthread_create(&s, NULL, sampler, NULL) == 0);
  for (int i = 0; i < PRODUCERS; i++) CHECK(pthread_join(c[i], NULL) == 0);
  atomic_store(&finished, 1);
  CHECK(pthread_join(s, NULL) == 0);
  CHECK(atomic_load(&samples) > 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  rounds = atol(argv[2]);
  hb.subbufs = subbufs;
  hb.ring_count = SUBBUFS;
  hb.ring_bytes = CAP;
  hb.ring = aligned_alloc(64, SUBBUFS * CAP); /* its end is guarded by AddressSanitizer */
  hb.slot = &process;
  hb.wiped = &wiped;
  hb.signal = SIGURG;
  if (!strcmp(argv[1], "ring")) ring();
  else handshake(!strcmp(argv[1], "handshake"));
  printf("%ld records, %ld dropped, %ld samples\n", atomic_load(&sent), atomic_load(&dropped), atomic_load(&samples));
  return 0;
}
