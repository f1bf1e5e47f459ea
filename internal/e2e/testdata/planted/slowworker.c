// A planted problem: three of four workers answer at once, and one polls for 400 ms before each answer. The batch waits for all of them.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { WORKERS = 4, BATCHES = 3 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, finished = PTHREAD_COND_INITIALIZER;
static int batch, left, silent[2];

__attribute__((noinline)) static void resolve_host(void) {
  struct pollfd fd = {.fd = silent[0], .events = POLLIN};
  if (poll(&fd, 1, 400) != 0) perror("poll"); // nobody ever writes
  __asm__ volatile("");
}

static void *worker(void *arg) {
  int number = (int)(long)arg;
  char name[16];
  snprintf(name, sizeof name, "pool-%d", number);
  pthread_setname_np(pthread_self(), name);
  for (int done = 0; done < BATCHES; done++) {
    pthread_mutex_lock(&lock);
    while (batch == done) pthread_cond_wait(&work, &lock);
    pthread_mutex_unlock(&lock);
    if (number == 2) resolve_host();
    pthread_mutex_lock(&lock);
    if (--left == 0) pthread_cond_signal(&finished);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}

__attribute__((noinline)) static void run_batch(void) {
  pthread_mutex_lock(&lock);
  left = WORKERS;
  batch++;
  pthread_cond_broadcast(&work);
  while (left > 0) pthread_cond_wait(&finished, &lock);
  pthread_mutex_unlock(&lock);
}

int main(void) {
  pthread_t threads[WORKERS];
  if (pipe(silent) != 0) return 1;
  for (long i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, worker, (void *)i);
  for (int i = 0; i < BATCHES; i++) run_batch();
  for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
  return 0;
}
