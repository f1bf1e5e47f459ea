/* deadlock: two threads that take two mutexes in opposite orders, and never get on. A third one waits for them. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t left = PTHREAD_MUTEX_INITIALIZER, right = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *forth(void *arg) {
  (void)arg;
  pthread_setname_np(pthread_self(), "forth");
  pthread_mutex_lock(&left);
  pthread_barrier_wait(&both);
  pthread_mutex_lock(&right);
  return NULL;
}

static void *back(void *arg) {
  (void)arg;
  pthread_setname_np(pthread_self(), "back");
  pthread_mutex_lock(&right);
  pthread_barrier_wait(&both);
  usleep(20000);
  pthread_mutex_lock(&left);
  return NULL;
}

int main(void) {
  pthread_t a, b;
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&a, NULL, forth, NULL);
  pthread_create(&b, NULL, back, NULL);
  usleep(100000);
  puts("stuck");
  fflush(stdout);
  pthread_join(a, NULL);
  pthread_join(b, NULL);
  return 0;
}
