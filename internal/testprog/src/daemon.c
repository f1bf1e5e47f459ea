/* daemon: a double fork; the grandchild lives in a session of its own with its standard descriptors on
 * /dev/null, works, reports through a pipe and ends before its starter does. */
#include "check.h"
#include <fcntl.h>
#include <sys/wait.h>

int main(void) {
  int fd[2];
  CHECK(pipe(fd) == 0);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK(setsid() > 0);
    pid = fork();
    CHECK(pid >= 0);
    if (pid > 0)
      _exit(0);
    close(fd[0]);
    CHECK(chdir("/") == 0);
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0);
    for (int i = 0; i < 3; i++)
      dup2(null, i);
    burn_ns(20000000);
    usleep(20000);
    char *p = malloc(1 << 20);
    memset(p, 1, 1 << 20);
    free(p);
    static const char line[] = "the daemon reports\n";
    CHECK(write(fd[1], line, sizeof line - 1) == (ssize_t)sizeof line - 1);
    _exit(0);
  }
  close(fd[1]);
  int st;
  CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0);
  char buf[100];
  ssize_t n;
  while ((n = read(fd[0], buf, sizeof buf)) > 0)
    fwrite(buf, 1, (size_t)n, stdout);
  CHECK(n == 0);
  puts("daemon ok");
  return 0;
}
