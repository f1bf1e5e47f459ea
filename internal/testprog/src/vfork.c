/* vfork: children that share memory with a stopped parent: exit, exec, and calls that hbtrace wraps made in
 * the child, while another thread of the parent goes on. */
#include "check.h"
#include <poll.h>
#include <sys/wait.h>

static volatile int stop;

static void *busy(void *arg) {
  (void)arg;
  while (!stop) {
    burn_ns(300000);
    free(malloc(300));
    usleep(300);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc > 1)
    return atoi(argv[1]);
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, busy, NULL), 0);
  volatile int shared = 0;
  int st;
  for (int i = 0; i < 60; i++) {
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
      shared++;
      poll(NULL, 0, 1); /* a wrapped call on the parent's thread pointer, but another thread id */
      _exit(i);
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == i);
  }
  CHECK(shared == 60);
  for (int i = 0; i < 20; i++) {
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
      execl("/proc/self/exe", "vfork", "23", (char *)NULL);
      _exit(127);
    }
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 23);
  }
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) { /* one that is waited for, for certain */
    await_asleep(getppid());
    usleep(1000);
    _exit(24);
  }
  CHECK(waitpid(pid, &st, 0) == pid);
  CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 24);
  pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    execl("/nonexistent/program", "x", (char *)NULL);
    _exit(errno == ENOENT ? 55 : 1);
  }
  CHECK(waitpid(pid, &st, 0) == pid);
  CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 55);
  stop = 1;
  CHECK_RC(pthread_join(t, NULL), 0);
  puts("vfork ok");
  return 0;
}
