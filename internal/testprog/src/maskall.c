/* maskall: threads that run and block with every signal masked, and handlers with full masks that block. */
#include "check.h"
#include <poll.h>
#include <signal.h>

static volatile int handled;

static void handler(int sig) {
  (void)sig;
  int e = errno;
  burn_ns(500000);
  int64_t t0 = mono_ns();
  CHECK(poll(NULL, 0, 1) == 0);
  CHECK(mono_ns() - t0 >= 1000000);
  __atomic_add_fetch(&handled, 1, __ATOMIC_RELAXED);
  errno = e;
}

static void *masked(void *arg) {
  sigset_t all;
  sigfillset(&all);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &all, NULL), 0);
  for (int i = 0; i < 100; i++) {
    burn_ns(1000000);
    CHECK(poll(NULL, 0, 1) == 0);
    CHECK(usleep(200) == 0);
    free(malloc(40));
  }
  return arg;
}

static void *open_to_all(void *arg) {
  for (int i = 0; i < 60 || !handled; i++) {
    burn_ns(1500000);
    int rc = poll(NULL, 0, 1);
    CHECK(rc == 0 || errno == EINTR); /* its own SIGUSR1 has no SA_RESTART */
  }
  __atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
  return NULL;
}

int main(void) {
  struct sigaction sa = {.sa_handler = handler};
  sigfillset(&sa.sa_mask);
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  pthread_t a, b;
  int done = 0;
  CHECK_RC(pthread_create(&a, NULL, masked, NULL), 0);
  CHECK_RC(pthread_create(&b, NULL, open_to_all, &done), 0);
  while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
    pthread_kill(b, SIGUSR1);
    usleep(8000);
  }
  CHECK_RC(pthread_join(a, NULL), 0);
  CHECK_RC(pthread_join(b, NULL), 0);
  CHECK(handled > 0);
  puts("maskall ok");
  return 0;
}
