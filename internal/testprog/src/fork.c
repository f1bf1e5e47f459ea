/* fork: children by fork and _Fork, nested, from a process with threads; each allocates, locks, sleeps and
 * starts threads of its own. */
#include "check.h"
#include <poll.h>
#include <sys/wait.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int stop;
static int prepared, in_parent, in_child;

static void on_prepare(void) { prepared++; }
static void on_parent(void) { in_parent++; }
static void on_child(void) { in_child++; }

static void *busy(void *arg) {
  (void)arg;
  while (!stop) {
    free(malloc(64));
    burn_ns(200000);
    poll(NULL, 0, 1);
  }
  return NULL;
}

static void *once(void *arg) {
  pthread_mutex_lock(&lock);
  ++*(int *)arg;
  pthread_mutex_unlock(&lock);
  free(malloc(1000));
  return NULL;
}

static int child(int n, int depth) {
  int sum = 0;
  pthread_t t[3];
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_create(&t[i], NULL, once, &sum), 0);
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  CHECK(sum == 3);
  char *p = malloc(5000);
  CHECK(p);
  memset(p, n, 5000);
  free(p);
  CHECK(poll(NULL, 0, 2) == 0);
  burn_ns(2000000);
  if (depth > 0) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
      _exit(child(n + 100, depth - 1));
    int st;
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == ((n + 100) & 0x7f));
  }
  return n & 0x7f;
}

int main(void) {
  CHECK_RC(pthread_atfork(on_prepare, on_parent, on_child), 0);
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, busy, NULL), 0);
  for (int i = 0; i < 12; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      CHECK(in_child == 1 && getpid() != getppid());
      int st = child(i, i % 3 == 0 ? 2 : 0);
      if (i % 2)
        exit(st);
      _exit(st);
    }
    int st;
    CHECK(waitpid(pid, &st, 0) == pid);
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == i);
  }
  CHECK(prepared == 12 && in_parent == 12 && in_child == 0);
  pid_t pid = _Fork(); /* no atfork handlers, async-signal-safe functions only */
  CHECK(pid >= 0);
  if (pid == 0)
    _exit(in_child == 0 ? 42 : 1);
  int st;
  CHECK(wait(&st) == pid);
  CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 42);
  stop = 1;
  CHECK_RC(pthread_join(t, NULL), 0);
  /* many at once */
  for (int i = 0; i < 20; i++) {
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      usleep(1000);
      _exit(7);
    }
  }
  int n = 0;
  while (wait(&st) > 0) {
    CHECK(WIFEXITED(st) && WEXITSTATUS(st) == 7);
    n++;
  }
  CHECK(n == 20 && errno == ECHILD);
  puts("fork ok");
  return 0;
}
