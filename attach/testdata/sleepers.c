/* sleepers: threads that sleep in one call for ever, and a worker that does not. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *sleep_paused(void *arg) {
  for (;;) pause();
  return arg;
}

static void *sleep_reading(void *arg) {
  int ends[2];
  char c;
  if (pipe(ends)) return NULL;
  for (;;)
    if (read(ends[0], &c, 1) < 0) return arg;
}

static void *sleep_waiting(void *arg) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&lock);
  for (;;) pthread_cond_wait(&never, &lock);
  return arg;
}

static void *work(void *arg) {
  for (;;) {
    free(malloc(100));
    usleep(1000);
  }
  return arg;
}

int main(void) {
  struct {
    void *(*body)(void *);
    const char *name;
  } all[] = {{sleep_paused, "pauser"}, {sleep_reading, "reader"}, {sleep_waiting, "waiter"}, {work, "worker"}};
  pthread_t t;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    pthread_create(&t, NULL, all[i].body, NULL);
    pthread_setname_np(t, all[i].name);
  }
  pthread_join(t, NULL);
}
