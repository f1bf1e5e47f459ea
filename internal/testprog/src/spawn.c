/* spawn: posix_spawn and posix_spawnp with file actions and attributes, popen and system. */
#include "check.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "child")) {
    sigset_t set;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
    printf("child %s: usr1 %s\n", argv[2], sigismember(&set, SIGUSR1) ? "blocked" : "open");
    return atoi(argv[2]);
  }
  int st;
  for (int i = 0; i < 10; i++) {
    int fd[2];
    CHECK(pipe(fd) == 0);
    posix_spawn_file_actions_t fa;
    posix_spawnattr_t at;
    CHECK_RC(posix_spawn_file_actions_init(&fa), 0);
    CHECK_RC(posix_spawn_file_actions_adddup2(&fa, fd[1], 1), 0);
    CHECK_RC(posix_spawn_file_actions_addclose(&fa, fd[0]), 0);
    CHECK_RC(posix_spawnattr_init(&at), 0);
    sigset_t set;
    sigemptyset(&set);
    if (i % 2)
      sigaddset(&set, SIGUSR1);
    CHECK_RC(posix_spawnattr_setsigmask(&at, &set), 0);
    CHECK_RC(posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK), 0);
    char num[12];
    snprintf(num, sizeof num, "%d", i);
    char *args[] = {"spawn", "child", num, NULL};
    pid_t pid;
    CHECK_RC(posix_spawn(&pid, "/proc/self/exe", &fa, &at, args, environ), 0);
    close(fd[1]);
    char buf[256] = "";
    size_t got = 0;
    for (ssize_t n; (n = read(fd[0], buf + got, sizeof buf - 1 - got)) > 0;)
      got += (size_t)n;
    close(fd[0]);
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == i);
    fputs(buf, stdout);
    posix_spawn_file_actions_destroy(&fa);
    posix_spawnattr_destroy(&at);
  }
  pid_t pid;
  char *args[] = {"true", NULL};
  CHECK_RC(posix_spawnp(&pid, "true", NULL, NULL, args, environ), 0);
  CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0);
  CHECK_RC(posix_spawn(&pid, "/nonexistent/program", NULL, NULL, args, environ), ENOENT);
  fflush(stdout);
  CHECK(WEXITSTATUS(system("exit 9")) == 9);
  FILE *f = popen("echo from popen", "r");
  CHECK(f);
  char line[64] = "";
  CHECK(fgets(line, sizeof line, f));
  fputs(line, stdout);
  CHECK(pclose(f) == 0);
  puts("spawn ok");
  return 0;
}
