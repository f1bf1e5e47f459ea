/* storm.c: many short lives. threads N: N threads, 32 at a time; detached N: N that nobody waits for; fork N: N
 * processes; exec N: one process that replaces itself N times. */
#include "check.h"
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int ended;

static void *brief(void *arg) {
  void *p = malloc(100);
  free(p);
  atomic_fetch_add(&ended, 1);
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  int n = atoi(argv[2]);
  if (strcmp(argv[1], "threads") == 0) {
    pthread_t t[32];
    for (int i = 0; i < n; i += 32) {
      for (int k = 0; k < 32; k++)
        CHECK_RC(pthread_create(&t[k], NULL, brief, NULL), 0);
      for (int k = 0; k < 32; k++)
        CHECK_RC(pthread_join(t[k], NULL), 0);
    }
  } else if (strcmp(argv[1], "detached") == 0) {
    pthread_attr_t attr;
    CHECK_RC(pthread_attr_init(&attr), 0);
    CHECK_RC(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED), 0);
    for (int i = 0; i < n; i++) {
      pthread_t t;
      while (pthread_create(&t, &attr, brief, NULL) != 0)
        usleep(100); /* there is a limit to the threads of a machine */
    }
    while (atomic_load(&ended) < n)
      usleep(1000);
  } else if (strcmp(argv[1], "fork") == 0) {
    for (int i = 0; i < n; i++) {
      pid_t pid = fork();
      CHECK(pid >= 0);
      if (pid == 0) {
        brief(NULL);
        _exit(i & 127);
      }
      int status;
      CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == (i & 127));
    }
  } else if (n > 0) {
    char next[16];
    snprintf(next, sizeof next, "%d", n - 1);
    execl(argv[0], argv[0], "exec", next, (char *)NULL);
    CHECK(!"exec came back");
  }
  printf("%s is over\n", argv[1]);
  return 6;
}
