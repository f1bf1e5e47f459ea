/* exits: the ends that are left: argv[1] is _exit-thread, quick (with its handlers), pthread-main (main ends, the rest
 * goes on), exit-busy (while others block, burn and hold locks), abort-thread, atexit (handlers that call everything). */
#include "check.h"
#include <poll.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static int begun;

static void *busy(void *arg) {
  int how = (int)(intptr_t)arg;
  __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
  for (;;) {
    if (how == 0)
      burn_ns(1000000);
    else if (how == 1)
      poll(NULL, 0, -1);
    else if (how == 2) {
      pthread_mutex_lock(&m);
      burn_ns(100000);
      pthread_mutex_unlock(&m);
      burn_ns(100000); /* a handler wants it, too */
    } else
      free(malloc(1000));
  }
  return NULL;
}

static void start_busy(void) {
  for (intptr_t i = 0; i < 8; i++) {
    pthread_t t;
    CHECK_RC(pthread_create(&t, NULL, busy, (void *)(i % 4)), 0);
  }
  while (__atomic_load_n(&begun, __ATOMIC_RELAXED) < 8)
    usleep(1000);
}

static void *leave(void *arg) {
  const char *how = arg;
  burn_ns(2000000);
  if (!strcmp(how, "_exit-thread"))
    _exit(21);
  if (!strcmp(how, "abort-thread"))
    abort();
  usleep(20000);
  puts("the rest went on");
  exit(22);
}

static void handler_one(void) { puts("handler one"); }
static void handler_two(void) {
  free(malloc(100));
  pthread_mutex_lock(&m);
  usleep(1000);
  pthread_mutex_unlock(&m);
  puts("handler two");
  fflush(stdout);
}
static void *in_handler(void *arg) { return arg; }
static void handler_three(void) {
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, in_handler, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  puts("handler three");
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  setvbuf(stdout, NULL, _IONBF, 0);
  pthread_t t;
  if (!strcmp(argv[1], "quick")) {
    at_quick_exit(handler_one);
    at_quick_exit(handler_two);
    start_busy();
    /* whoever holds the lock lets it go soon */
    quick_exit(23);
  }
  if (!strcmp(argv[1], "atexit")) {
    atexit(handler_one);
    atexit(handler_two);
    atexit(handler_three);
    return 24;
  }
  if (!strcmp(argv[1], "exit-busy")) {
    start_busy();
    exit(25);
  }
  if (strcmp(argv[1], "pthread-main"))
    start_busy();
  CHECK_RC(pthread_create(&t, NULL, leave, argv[1]), 0);
  if (!strcmp(argv[1], "pthread-main"))
    pthread_exit(NULL);
  for (;;)
    pause();
}
