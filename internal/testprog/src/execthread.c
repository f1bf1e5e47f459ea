/* execthread: exec from a thread that is not the first, while others run, block and hold locks: the new program takes the
 * first one's place. argv[1] times; some by vfork and exec from a thread, some with an empty environment in a child. */
#include "check.h"
#include <poll.h>
#include <sys/wait.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static char **args;
static char left[16];

static void *busy(void *arg) {
  for (;;) {
    if (arg)
      poll(NULL, 0, 1);
    pthread_mutex_lock(&m);
    burn_ns(300000);
    free(malloc(2000));
    pthread_mutex_unlock(&m);
  }
  return NULL;
}

static void *leave(void *arg) {
  burn_ns(1500000);
  pid_t pid = vfork();
  CHECK(pid >= 0);
  if (pid == 0) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(97);
  }
  int st;
  CHECK(waitpid(pid, &st, 0) == pid && st == 0);
  if ((pid = fork()) == 0) {
    char *none[] = {NULL}, *words[] = {"true", NULL};
    execve("/bin/true", words, none);
    _exit(97);
  }
  CHECK(waitpid(pid, &st, 0) == pid && st == 0);
  execl("/proc/self/exe", args[0], left, (char *)NULL);
  CHECK(!"exec came back");
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int n = atoi(argv[1]);
  if (n == 0) {
    puts("execthread ok");
    return 11;
  }
  args = argv;
  snprintf(left, sizeof left, "%d", n - 1);
  pthread_t t;
  for (intptr_t i = 0; i < 4; i++)
    CHECK_RC(pthread_create(&t, NULL, busy, (void *)(i % 2)), 0);
  CHECK_RC(pthread_create(&t, NULL, leave, NULL), 0);
  for (;;)
    pause();
}
