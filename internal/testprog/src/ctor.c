/* ctor: allocation, locks and a thread in constructors before main, and in destructors and atexit after it. */
#include "check.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static char *early, *middle;
static int from_thread;

static void *body(void *arg) {
  pthread_mutex_lock(&m);
  from_thread = 5;
  pthread_mutex_unlock(&m);
  return arg;
}

__attribute__((constructor(101))) static void first(void) {
  early = malloc(1 << 20);
  memset(early, 7, 1 << 20);
  early = realloc(early, 2 << 20);
}

__attribute__((constructor)) static void second(void) {
  middle = calloc(100, 100);
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, body, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  burn_ns(10000000);
}

__attribute__((destructor)) static void last(void) {
  free(early);
  char *p = malloc(100);
  strcpy(p, "destructor\n");
  burn_ns(10000000);
  CHECK(write(1, p, strlen(p)) == (ssize_t)strlen(p));
  free(p);
}

static void at_exit(void) {
  free(middle);
  puts("atexit");
  fflush(stdout);
}

int main(void) {
  atexit(at_exit);
  CHECK(early[1000] == 7 && middle[9999] == 0 && from_thread == 5);
  puts("main");
  return 0;
}
