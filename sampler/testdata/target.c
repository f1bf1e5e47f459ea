//go:build ignore
/* target.c: a program that keeps its side of the handshake with the sampler and does one thing, named by its
 * argument. fd 3 is the segment. It claims process slot 0 and thread slot 0 (more with "threads"), counts
 * the signals it takes in the slot's reserved words, and writes "ready\n". */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "segment/layout.h"

static struct hb_header *seg;
static struct hb_thread *threads;
static __thread struct hb_thread *self;

static uint64_t cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* reserved3: 0 periodic, 1 gap, 2 foreign or stray, 3 CPU at first periodic, 4 CPU at last periodic */
static void on_signal(int sig, siginfo_t *si, void *uc) {
  (void)sig; (void)uc;
  int e = errno;
  if (!self || si->si_code != SI_QUEUE || ((uint32_t)si->si_value.sival_int & ~0xffu) != seg->cookie ||
      atomic_load(&self->state) != HB_SIGNALLED) {
    if (self) self->reserved3[2]++;
    errno = e;
    return;
  }
  uint32_t kind = (uint32_t)si->si_value.sival_int & 0xff;
  if (kind != atomic_load(&self->ask)) self->reserved3[2]++;
  if (kind == HB_ASK_PERIODIC) {
    self->reserved3[4] = cpu();
    if (!self->reserved3[0]++) self->reserved3[3] = self->reserved3[4];
  } else {
    self->reserved3[1]++;
  }
  atomic_store(&self->last_tick, atomic_load(&seg->tick));
  atomic_fetch_add(&self->samples, 1);
  atomic_store(&self->state, HB_RUNNING);
  errno = e;
}

static void claim(int slot, uint32_t uid) {
  struct hb_thread *t = &threads[slot];
  t->proc = 0;
  t->proc_uid = 1;
  t->tid = (uint32_t)syscall(SYS_gettid);
  self = t;
  uint32_t high = atomic_load(&seg->threads_high);
  while (high < (uint32_t)slot + 1 && !atomic_compare_exchange_weak(&seg->threads_high, &high, (uint32_t)slot + 1))
    ;
  atomic_store(&t->uid, uid);
}

static void spin(void) {
  for (volatile uint64_t i = 0;; i++)
    ;
}

static void mask(int how) {
  sigset_t s;
  sigemptyset(&s);
  sigaddset(&s, SIGURG);
  pthread_sigmask(how, &s, NULL);
}

static void *thread_main(void *arg) {
  claim((int)(intptr_t)arg, (uint32_t)(intptr_t)arg + 1);
  return NULL; /* without giving its slot back: as a thread that ends by a raw system call */
}

int main(int argc, char **argv) {
  struct stat st;
  if (argc < 2 || fstat(3, &st)) return 2;
  seg = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
  if (seg == MAP_FAILED) return 2;
  threads = (struct hb_thread *)((char *)seg + seg->threads_off);
  struct hb_proc *p = (struct hb_proc *)((char *)seg + seg->procs_off);
  struct sigaction sa;
  memset(&sa, 0, sizeof sa);
  sa.sa_sigaction = on_signal;
  sa.sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK;
  sigfillset(&sa.sa_mask);
  if (strcmp(argv[1], "nohandler")) sigaction(SIGURG, &sa, NULL);
  p->pid = (uint32_t)getpid();
  atomic_store(&p->uid, 1);
  atomic_store(&p->state, HB_PROC_LIVE);
  atomic_store(&seg->procs_high, 1);
  if (!strcmp(argv[1], "blocked")) atomic_store(&threads[0].state, HB_BLOCKED);
  if (!strcmp(argv[1], "masked")) mask(SIG_BLOCK);
  claim(0, 1);
  if (write(1, "ready\n", 6) != 6) return 3;

  if (!strcmp(argv[1], "masked")) { /* spins masked until the sampler asked, then takes it */
    while (atomic_load(&threads[0].state) != HB_SIGNALLED)
      ;
    uint64_t until = cpu() + 300000000u; /* longer than the sampler's patience */
    while (cpu() < until)
      ;
    if (atomic_load(&threads[0].state) == HB_SIGNALLED) threads[0].reserved2[0] = 1; /* it waited */
    mask(SIG_UNBLOCK);
    spin();
  }
  if (!strcmp(argv[1], "asleep")) { /* in a system call that nobody wraps; counts interruptions */
    for (;;) {
      struct timespec t = {0, 2000000};
      uint64_t until = cpu() + 200000u;
      while (cpu() < until)
        ;
      if (syscall(SYS_nanosleep, &t, NULL) == -1 && errno == EINTR) threads[0].reserved2[1]++;
      threads[0].reserved2[0]++;
    }
  }
  if (!strcmp(argv[1], "thread")) {
    pthread_t t;
    if (pthread_create(&t, NULL, thread_main, (void *)1)) return 4;
    pthread_join(t, NULL);
  }
  spin();
}
