// A planted problem: save_journal keeps journal_lock while it calls fsync, and three readers wait for the lock.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { READERS = 3, ROUNDS = 4 };

static pthread_mutex_t journal_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int asking, round_now;
static long entries;

static void a_moment(void) {
  struct timespec ms = {0, 1000 * 1000};
  nanosleep(&ms, NULL);
}

__attribute__((noinline)) static void write_out(int fd) {
  if (fsync(fd) != 0) perror("fsync");
  __asm__ volatile("");
}

__attribute__((noinline)) static void save_journal(int fd) {
  pthread_mutex_lock(&journal_lock);
  atomic_store(&asking, 0);
  atomic_fetch_add(&round_now, 1);
  while (atomic_load(&asking) < READERS) a_moment(); // every reader is about to ask for the lock
  write_out(fd);
  entries++;
  pthread_mutex_unlock(&journal_lock);
}

__attribute__((noinline)) static long read_entry(void) {
  pthread_mutex_lock(&journal_lock);
  long n = entries;
  pthread_mutex_unlock(&journal_lock);
  return n;
}

static void *reader(void *arg) {
  char name[16];
  snprintf(name, sizeof name, "reader-%d", (int)(long)arg);
  pthread_setname_np(pthread_self(), name);
  for (int round = 1; round <= ROUNDS; round++) {
    while (atomic_load(&round_now) < round) a_moment();
    atomic_fetch_add(&asking, 1);
    read_entry();
  }
  return NULL;
}

static void *saver(void *arg) {
  pthread_setname_np(pthread_self(), "saver");
  for (int round = 0; round < ROUNDS; round++) {
    save_journal(1);
    a_moment();
  }
  return arg;
}

int main(void) {
  pthread_t threads[READERS + 1];
  for (long i = 0; i < READERS; i++) pthread_create(&threads[i], NULL, reader, (void *)i);
  pthread_create(&threads[READERS], NULL, saver, NULL);
  for (int i = 0; i <= READERS; i++) pthread_join(threads[i], NULL);
  return entries == ROUNDS ? 0 : 1;
}
