/* Works twice for a while on two threads that share a lock: the second time when the file argv[1].go appears. It makes
   argv[1].1 and argv[1].2 when it has done so, and is idle then until it is ended. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t shelf_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long sum;

static void count_stock(void) {
  for (int i = 0; i < 20000000; i++) sum += i;
}

static void *stocktaker(void *unused) {
  for (int i = 0; i < 15; i++) {
    pthread_mutex_lock(&shelf_lock);
    count_stock();
    usleep(2000);
    pthread_mutex_unlock(&shelf_lock);
    void *volatile box = malloc(1 << 20);
    free(box);
    usleep(1000);
  }
  return unused;
}

static void work(const char *prefix, const char *suffix) {
  pthread_t t[2];
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, stocktaker, NULL);
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  char path[4096];
  snprintf(path, sizeof path, "%s%s", prefix, suffix);
  fclose(fopen(path, "w"));
}

int main(int argc, char **argv) {
  char go[4096];
  snprintf(go, sizeof go, "%s.go", argv[1]);
  work(argv[1], ".1");
  while (access(go, F_OK) != 0) usleep(20000);
  work(argv[1], ".2");
  for (;;) pause();
  return argc;
}
