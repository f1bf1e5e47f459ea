/* outofsight: after chroot, and with no descriptor left, the file that LD_PRELOAD names is not there for the next
 * loader. The programs started then print what they print without it: every way to exec, spawn and call a shell.
 * Usage: outofsight ROOT DIR: ROOT is a root directory with the system's programs and an empty DIR in it, where the
 * preloaded file was. */
#include "check.h"
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;

static void wait_for(pid_t pid, int want) {
  int status;
  CHECK(pid > 0);
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == want);
}

static char *const argv_echo[] = {"echo", "hello", NULL};

static void every_exec(void) {
  for (int way = 0; way < 8; way++) {
    pid_t pid = way == 7 ? vfork() : fork();
    if (pid == 0) {
      switch (way) {
      case 0: execve("/bin/echo", argv_echo, environ); break;
      case 1: execv("/bin/echo", argv_echo); break;
      case 2: execvp("echo", argv_echo); break;
      case 3: execvpe("echo", argv_echo, environ); break;
      case 4: execl("/bin/echo", "echo", "hello", (char *)NULL); break;
      case 5: execlp("echo", "echo", "hello", (char *)NULL); break;
      case 6: execle("/bin/echo", "echo", "hello", (char *)NULL, environ); break;
      case 7: execve("/bin/echo", argv_echo, environ); break;
      }
      _exit(98);
    }
    wait_for(pid, 0);
  }
  pid_t pid;
  CHECK_RC(posix_spawn(&pid, "/bin/echo", NULL, NULL, argv_echo, environ), 0);
  wait_for(pid, 0);
  CHECK_RC(posix_spawnp(&pid, "echo", NULL, NULL, argv_echo, environ), 0);
  wait_for(pid, 0);
  if ((pid = fork()) == 0) { /* more variables than fit on a stack */
    static char *env[2000];
    int n = 0;
    for (char **e = environ; *e && n < 1000; e++)
      env[n++] = *e;
    while (n < 1999)
      env[n++] = "FILL=er";
    execve("/bin/echo", argv_echo, env);
    _exit(98);
  }
  wait_for(pid, 0);
  /* an exec that fails leaves everything as it was */
  CHECK(execve("/nonexistent", argv_echo, environ) == -1 && errno == ENOENT);
  char *none[] = {NULL};
  CHECK(execve("/nonexistent", argv_echo, none) == -1 && errno == ENOENT);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  setvbuf(stdout, NULL, _IONBF, 0);
  every_exec();
  CHECK(system("echo before") == 0);
  if (fork() == 0) { /* not even libc can be opened: the loader says that, and only that */
    struct rlimit none = {3, 3};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    execv("/bin/echo", argv_echo);
    _exit(98);
  }
  int status;
  CHECK(wait(&status) > 0);
  printf("status %d\n", WEXITSTATUS(status));
  CHECK(chroot(argv[1]) == 0 && chdir("/") == 0);
  CHECK(access(argv[2], F_OK) == 0);
  every_exec();
  CHECK(system("echo behind") == 0);
  FILE *p = popen("echo piped", "r");
  char line[64];
  CHECK(p && fgets(line, sizeof line, p) && !strcmp(line, "piped\n") && pclose(p) == 0);
  puts("outofsight ok");
  return 0;
}
