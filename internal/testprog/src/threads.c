/* threads: 2,000 short threads, joined and detached, each allocating, locking and named. */
#include "check.h"
#include <semaphore.h>

enum { BATCHES = 125, BATCH = 16 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counter, destroyed;
static sem_t done;
static pthread_key_t key;

static void destroy(void *p) {
  free(p);
  __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
}

static void *body(void *arg) {
  pthread_setname_np(pthread_self(), "short");
  CHECK_RC(pthread_setspecific(key, malloc(10)), 0);
  char *p = malloc(200);
  memset(p, 1, 200);
  pthread_mutex_lock(&lock);
  counter += p[7];
  pthread_mutex_unlock(&lock);
  free(p);
  if (arg)
    sem_post(&done);
  return arg;
}

int main(void) {
  CHECK(sem_init(&done, 0, 0) == 0);
  CHECK_RC(pthread_key_create(&key, destroy), 0);
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int b = 0; b < BATCHES; b++) {
    pthread_t t[BATCH];
    int det = b % 5 == 0;
    for (int i = 0; i < BATCH; i++)
      CHECK_RC(pthread_create(&t[i], det ? &detached : NULL, body, det ? &done : NULL), 0);
    for (int i = 0; i < BATCH; i++)
      if (det)
        CHECK(sem_wait(&done) == 0);
      else {
        void *ret = &ret;
        CHECK_RC(pthread_join(t[i], &ret), 0);
        CHECK(ret == NULL);
      }
  }
  CHECK(counter == BATCHES * BATCH);
  /* a detached thread may still be in its destructor: give it a while, bounded to a minute */
  for (int i = 0; i < 60000 && __atomic_load_n(&destroyed, __ATOMIC_RELAXED) < BATCHES * BATCH; i++)
    usleep(1000);
  CHECK(destroyed == BATCHES * BATCH);
  printf("%ld threads\n", counter);
  return 0;
}
