/* stopped: starts programs while its parent, which must be hbtrace, is stopped. */
#include "check.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(void) {
  char *argv[] = {"true", NULL};
  CHECK(getenv("HBTRACE_SESSION") != NULL); /* or it would stop a shell */
  pid_t parent = getppid(), pid;
  char buf[1024];
  const char *s;
  CHECK(kill(parent, SIGSTOP) == 0);
  while ((s = stat_of(parent, buf, sizeof buf)) && *s != 'T')
    usleep(200);
  int64_t from = mono_ns();
  int failed = 0;
  for (int i = 0; i < 20; i++) { /* 100 s for a process that waits for an answer each time */
    int status = -1;
    failed |= posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) || waitpid(pid, &status, 0) != pid || status;
    if (mono_ns() - from > 60000000000)
      break;
  }
  int64_t took = mono_ns() - from;
  CHECK(kill(parent, SIGCONT) == 0);
  CHECK(!failed && took < 60000000000);
  puts("stopped ok");
  return 0;
}
