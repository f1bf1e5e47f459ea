/* places: a program that changes where it is: session, process group, name spaces, root, user. It works, waits and
 * starts threads and children everywhere. */
#include "check.h"
#include <poll.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static void *body(void *arg) {
  for (int i = 0; i < 3; i++) {
    burn_ns(500000);
    pthread_mutex_lock(&m);
    CHECK(poll(NULL, 0, 1) == 0);
    pthread_mutex_unlock(&m);
    void *p = malloc(300000);
    free(p);
  }
  return arg;
}

static void work(const char *where) {
  pthread_t t[2];
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&t[i], NULL, body, NULL), 0);
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  fflush(stdout);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    body(NULL);
    _exit(3);
  }
  int st;
  CHECK(waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 3);
  printf("worked in %s\n", where);
}

static void try(const char *what, int rc) { printf("%s: %s\n", what, rc < 0 ? strerror(errno) : "done"); }

int main(void) {
  work("the beginning");
  fflush(stdout);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    CHECK(setsid() == getpid());
    work("a session of its own");
    try("unshare files and directories", unshare(CLONE_FILES | CLONE_FS));
    work("unshared files");
    try("unshare mounts, host name, queues", unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC));
    work("other mounts");
    try("unshare network", unshare(CLONE_NEWNET));
    work("another network");
    try("unshare pids", unshare(CLONE_NEWPID));
    fflush(stdout);
    /* from here on children are in another pid name space: no threads may be made, and the first child is its init */
    pid_t init = fork();
    CHECK(init >= 0);
    if (init == 0) {
      work("another pid name space");
      exit(4);
    }
    int st;
    CHECK(waitpid(init, &st, 0) == init && WEXITSTATUS(st) == 4);
    exit(5);
  }
  int st;
  CHECK(waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 5);
  CHECK(setpgid(0, 0) == 0);
  char dir[] = "/tmp/hbtrace-places-XXXXXX";
  CHECK(mkdtemp(dir));
  CHECK(chmod(dir, 0755) == 0);
  fflush(stdout);
  CHECK((pid = fork()) >= 0);
  if (pid == 0) {
    CHECK(chdir(dir) == 0);
    try("chroot", chroot("."));
    work("an empty root");
    try("setgid", setgid(65534));
    try("setuid", setuid(65534));
    work("another user");
    exit(6);
  }
  CHECK(waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 6);
  CHECK(rmdir(dir) == 0);
  puts("places ok");
  return 0;
}
