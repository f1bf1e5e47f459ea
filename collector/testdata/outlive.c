//go:build ignore
/* outlive.c: works for three seconds with several threads, whatever becomes of the recorder, and on until there is a file
 * that its second argument names, then says so and makes the one that the first names. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char *wait_for;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *work(void *arg) {
  double until = now() + 3;
  pthread_mutex_t *m = arg;
  while (now() < until || (wait_for && access(wait_for, F_OK))) {
    volatile char *p = malloc(100000);
    p[0] = 1;
    free((void *)p);
    pthread_mutex_lock(m);
    usleep(1000);
    pthread_mutex_unlock(m);
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_t t[3];
  wait_for = argc > 2 ? argv[2] : NULL;
  for (int i = 0; i < 3; i++) pthread_create(&t[i], NULL, work, &m);
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  puts("complete");
  fflush(stdout);
  int fd = argc > 1 ? open(argv[1], O_CREAT | O_WRONLY, 0644) : -1;
  return fd < 0;
}
