/* names: a lock on the heap that two functions of a program take about as often, and another that one takes. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

struct cache {
  pthread_mutex_t lock;
  long hits, stored;
};
struct journal {
  pthread_mutex_t *lock;
  long lines;
};
static struct cache *cache;
static struct journal *journal;

__attribute__((noinline)) static void cache_get(void) {
  pthread_mutex_lock(&cache->lock);
  cache->hits++;
  usleep(300);
  pthread_mutex_unlock(&cache->lock);
}
__attribute__((noinline)) static void cache_put(void) {
  pthread_mutex_lock(&cache->lock);
  cache->stored++;
  usleep(300);
  pthread_mutex_unlock(&cache->lock);
}
__attribute__((noinline)) static void journal_add(void) {
  pthread_mutex_lock(journal->lock);
  journal->lines++;
  usleep(200);
  pthread_mutex_unlock(journal->lock);
}
static void *work(void *arg) {
  for (int i = 0; i < 60; i++) {
    if ((intptr_t)arg >= 2) /* two threads for each lock: both are waited for, whatever the machine does */
      journal_add();
    else if (i % 16 != 15)
      cache_get();
    else
      cache_put();
    usleep(100); /* less than the lock is held: a thread that comes back finds it taken and waits */
  }
  return NULL;
}
int main(void) {
  pthread_t t[4];
  for (int i = 0; i < getpid() % 7; i++) cache = malloc(40); /* another address each time */
  cache = calloc(1, sizeof *cache);
  journal = calloc(1, sizeof *journal);
  journal->lock = calloc(1, sizeof *journal->lock);
  pthread_mutex_init(&cache->lock, NULL);
  pthread_mutex_init(journal->lock, NULL);
  for (intptr_t i = 0; i < 4; i++) pthread_create(&t[i], NULL, work, (void *)i);
  for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
  return 0;
}
