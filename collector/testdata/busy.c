//go:build ignore
/* busy.c: allocation, a contended lock, a slow call, CPU work and a fork child, for a known time each. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
volatile unsigned long sink;

static double cpu_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

__attribute__((noinline)) void burn_cpu(double ms) {
  double until = cpu_ms() + ms;
  while (cpu_ms() < until)
    for (int i = 0; i < 10000; i++) sink += (unsigned long)i;
}

/* Whoever has it first keeps it until the other waits: glibc's word is 2 then. */
__attribute__((noinline)) void hold_lock(void) {
  static int had;
  pthread_mutex_lock(&lock);
  for (int i = 0; !had && i < 10000 && *(volatile int *)&lock != 2; i++) usleep(1000);
  had = 1;
  usleep(30000);
  pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) void allocate(void) {
  for (int i = 0; i < 4000; i++) {
    volatile char *p = malloc(8192);
    p[0] = (char)i;
    sink += (unsigned long)p[0];
    free((void *)p);
  }
}

static void *worker(void *arg) {
  (void)arg;
  pthread_setname_np(pthread_self(), "worker");
  for (int i = 0; i < 3; i++) hold_lock();
  burn_cpu(200);
  return NULL;
}

int main(void) {
  pthread_t t[2];
  puts("begin");
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, worker, NULL);
  allocate();
  burn_cpu(200);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    burn_cpu(200);
    _exit(5);
  }
  int status;
  waitpid(child, &status, 0);
  printf("child %d\n", WEXITSTATUS(status));
  return 7;
}
