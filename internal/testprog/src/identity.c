/* identity.c: a program that gives up its privileges, its name and its descriptors, and goes on with threads and
 * children, as daemons do. As an ordinary user it becomes itself. */
#include "check.h"
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void *work(void *arg) {
  burn_ns(30000000);
  usleep(20000);
  return arg;
}

int main(void) {
  uid_t to = getuid() == 0 ? 65534 : getuid();
  gid_t group = getuid() == 0 ? 65534 : getgid();
  if (getuid() == 0)
    CHECK(setgroups(0, NULL) == 0);
  CHECK(setresgid(group, group, group) == 0 && setresuid(to, to, to) == 0);
  CHECK(prctl(PR_SET_DUMPABLE, 0) == 0); /* /proc/self belongs to root now */
  CHECK(prctl(PR_SET_NAME, "a (b) c\n") == 0);
  for (int fd = 3; fd < 64; fd++)
    close(fd);
  struct rlimit none = {3, 3};
  CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
  pthread_t t[3];
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_create(&t[i], NULL, work, NULL), 0);
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  for (int i = 0; i < 5; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      work(NULL);
      _exit(i);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == i);
  }
  CHECK(open("/dev/null", 0) < 0 && errno == EMFILE);
  printf("somebody else\n");
  return 5;
}
