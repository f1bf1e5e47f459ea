/* A server in small: "writer" holds cache_lock while it works, "reader" threads wait for it, until the program is told to
   end. Once, "writer" holds the lock much longer: when the file that argv[1] names appears. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long work_done;

static void work(long ms) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  do {
    for (int i = 0; i < 10000; i++) work_done += i;
    clock_gettime(CLOCK_MONOTONIC, &b);
  } while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
}

static void rebuild_cache(long ms) { work(ms); }

static void *writer(void *path) {
  prctl(PR_SET_NAME, "writer");
  for (int slow = 0;;) {
    pthread_mutex_lock(&cache_lock);
    if (!slow && path && access(path, F_OK) == 0) {
      slow = 1;
      rebuild_cache(1500);
    }
    work(2);
    pthread_mutex_unlock(&cache_lock);
    usleep(5000);
  }
}

static void *reader(void *unused) {
  prctl(PR_SET_NAME, "reader");
  for (;;) {
    pthread_mutex_lock(&cache_lock);
    work_done++;
    pthread_mutex_unlock(&cache_lock);
    usleep(1000);
  }
  return unused;
}

int main(int argc, char **argv) {
  pthread_t t[3];
  pthread_create(&t[0], NULL, writer, argc > 1 ? argv[1] : NULL);
  for (int i = 1; i < 3; i++) pthread_create(&t[i], NULL, reader, NULL);
  for (;;) pause();
}
