/* starter: starts the program in argv[1], with the rest as its arguments, by every way, and says how it ended. */
#include "check.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
  CHECK(argc > 1);
  for (int way = 0; way < 3; way++) {
    pid_t pid = -1;
    fflush(stdout);
    if (way == 2)
      CHECK_RC(posix_spawn(&pid, argv[1], NULL, NULL, argv + 1, environ), 0);
    else if ((pid = way ? vfork() : fork()) == 0) {
      execv(argv[1], argv + 1);
      _exit(97);
    }
    CHECK(pid > 0);
    int st;
    CHECK(waitpid(pid, &st, 0) == pid);
    printf("status %d\n", WEXITSTATUS(st));
  }
  return 0;
}
