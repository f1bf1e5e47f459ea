/* Two threads that meet at a barrier, take a lock in turn and sleep with it; ends with status 7. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *fill_shelf(void *unused) {
  for (int i = 0; i < 10; i++) {
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&shelf_lock);
    usleep(2000);
    pthread_mutex_unlock(&shelf_lock);
  }
  return unused;
}

int main(void) {
  pthread_t t[2];
  pthread_barrier_init(&both, NULL, 2);
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, fill_shelf, NULL);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  puts("filled");
  return 7;
}
