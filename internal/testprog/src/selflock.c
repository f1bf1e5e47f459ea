/* A thread locks a normal mutex that it holds already. */
#include <pthread.h>
#include <sys/prctl.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void again(void) { pthread_mutex_lock(&lock); }

static void *self(void *unused) {
  (void)unused;
  prctl(PR_SET_NAME, "self");
  pthread_mutex_lock(&lock);
  again();
  return NULL;
}

int main(void) {
  pthread_t t;
  pthread_create(&t, NULL, self, NULL);
  pthread_join(t, NULL);
  return 0;
}
