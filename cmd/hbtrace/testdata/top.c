//go:build ignore
/* top.c: a thread that has a lock and reads, one that waits for the lock, one that burns CPU, until standard input ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_mutex_t till = PTHREAD_MUTEX_INITIALIZER;
static atomic_int taken, over;
static volatile unsigned long sink;

__attribute__((noinline)) static void count_money(void) {
  char c;
  while (read(0, &c, 1) > 0) {
  }
  sink++; /* not a tail call */
}

static void *holder(void *arg) {
  pthread_setname_np(pthread_self(), "holder");
  pthread_mutex_lock(&till);
  taken = 1;
  count_money();
  over = 1;
  pthread_mutex_unlock(&till);
  return arg;
}

__attribute__((noinline)) static void pay(void) {
  pthread_mutex_lock(&till);
  pthread_mutex_unlock(&till);
  sink++;
}

static void *waiter(void *arg) {
  pthread_setname_np(pthread_self(), "waiter");
  while (!taken) usleep(1000);
  pay();
  return arg;
}

__attribute__((noinline)) static void burn(void) {
  while (!over) sink++;
}

static void *burner(void *arg) {
  pthread_setname_np(pthread_self(), "evil\n\x1b[2J\xff"); /* names are the program's to choose */
  burn();
  return arg;
}

int main(void) {
  pthread_t t[3];
  pthread_create(&t[0], NULL, holder, NULL);
  pthread_create(&t[1], NULL, waiter, NULL);
  pthread_create(&t[2], NULL, burner, NULL);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  return 0;
}
