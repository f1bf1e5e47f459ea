/* die: ends by a signal: argv[1] is abort, segv, bus, fpe, ill, kill, term, usr1, thread-segv, handled-segv. */
#include "check.h"
#include <signal.h>
#include <sys/resource.h>

static void *crash(void *arg) {
  (void)arg;
  *(volatile int *)8 = 1;
  return NULL;
}

static void report(int sig) {
  static const char line[] = "handler saw it\n";
  CHECK(write(1, line, sizeof line - 1) == (ssize_t)sizeof line - 1);
  signal(sig, SIG_DFL);
}

int main(int argc, char **argv) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  CHECK(argc == 2);
  const char *how = argv[1];
  printf("about to die by %s\n", how);
  fflush(stdout);
  burn_ns(5000000);
  free(malloc(100000));
  if (!strcmp(how, "abort"))
    abort();
  if (!strcmp(how, "segv"))
    crash(NULL);
  if (!strcmp(how, "bus"))
    raise(SIGBUS);
  if (!strcmp(how, "fpe"))
    raise(SIGFPE);
  if (!strcmp(how, "ill"))
    raise(SIGILL);
  if (!strcmp(how, "kill"))
    kill(getpid(), SIGKILL);
  if (!strcmp(how, "term"))
    kill(getpid(), SIGTERM);
  if (!strcmp(how, "usr1"))
    raise(SIGUSR1);
  if (!strcmp(how, "thread-segv")) {
    pthread_t t;
    CHECK_RC(pthread_create(&t, NULL, crash, NULL), 0);
    pthread_join(t, NULL);
  }
  if (!strcmp(how, "handled-segv")) {
    signal(SIGSEGV, report);
    crash(NULL);
  }
  pause();
  return 0;
}
