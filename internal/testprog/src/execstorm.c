/* execstorm: replaces itself argv[1] times, in turn from the first thread and from another, through each function that can,
 * while other threads of the process burn CPU time, sleep, and exec in vain: a sampling signal that is on its way when the new
 * program takes over finds nobody who handles it. argv[2] ns of CPU time are used before each. */
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>

extern char **environ;
static char **args;
static int left;
static pthread_barrier_t ready;

static void *burn(void *arg) {
  pthread_barrier_wait(&ready);
  for (;;) {
    burn_ns(50000 + 10000 * (intptr_t)arg);
    if (arg)
      poll(NULL, 0, 0);
  }
  return NULL;
}

/* An exec that fails must not let signals in on one that is under way. */
static void *vain(void *arg) {
  char *words[] = {"nothing", NULL};
  pthread_barrier_wait(&ready);
  for (;;) {
    CHECK(execve("/nonexistent/program", words, environ) == -1 && errno == ENOENT);
    burn_ns(20000);
  }
  return arg;
}

static void *again(void *arg) {
  const char *self = "/proc/self/exe";
  pthread_barrier_wait(&ready);
  burn_ns(atol(args[2]));
  switch (left / 2 % 8) {
  case 0: execv(self, args); break;
  case 1: execve(self, args, environ); break;
  case 2: execvp(self, args); break;
  case 3: execl(self, args[0], args[1], args[2], (char *)NULL); break;
  case 4: fexecve(open(self, O_RDONLY | O_CLOEXEC), args, environ); break;
  case 5: execveat(AT_FDCWD, self, args, environ, 0); break;
  case 6: syscall(SYS_execve, self, args, environ); break;
  case 7: syscall(SYS_execveat, AT_FDCWD, self, args, environ, 0); break;
  }
  CHECK(!"exec came back");
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  left = atoi(argv[1]);
  if (left == 0) {
    puts("execstorm ok");
    return 13;
  }
  char num[12];
  snprintf(num, sizeof num, "%d", left - 1);
  args = (char *[]){argv[0], num, argv[2], NULL};
  CHECK_RC(pthread_barrier_init(&ready, NULL, left % 2 ? 4 : 5), 0);
  pthread_t t;
  for (intptr_t i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&t, NULL, burn, (void *)i), 0);
  CHECK_RC(pthread_create(&t, NULL, vain, NULL), 0);
  if (left % 2)
    again(NULL);
  CHECK_RC(pthread_create(&t, NULL, again, NULL), 0);
  burn(NULL);
}
