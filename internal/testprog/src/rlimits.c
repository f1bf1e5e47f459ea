/* rlimits: limits lowered and raised while the program runs, and what they do to it: the same with and without a
 * recorder. argv[1] "again": it was started anew with a raised stack limit. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static void *body(void *arg) {
  for (int i = 0; i < 4; i++) {
    burn_ns(1000000);
    pthread_mutex_lock(&m);
    CHECK(poll(NULL, 0, 1) == 0);
    pthread_mutex_unlock(&m);
    free(malloc(300000));
  }
  return arg;
}

static void work(const char *how) {
  pthread_t t[3];
  int n = 0;
  while (n < 3 && pthread_create(&t[n], NULL, body, NULL) == 0)
    n++;
  if (n == 0)
    body(NULL);
  for (int i = 0; i < n; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  printf("%s: worked with %d threads\n", how, n);
  fflush(stdout);
}

static void in_child(const char *how, int resource, rlim_t soft) {
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    struct rlimit r;
    CHECK(getrlimit(resource, &r) == 0);
    r.rlim_cur = soft;
    CHECK(setrlimit(resource, &r) == 0);
    if (resource == RLIMIT_NOFILE) {
      int fd = open("/dev/null", O_RDONLY);
      printf("open: %s\n", fd < 0 ? strerror(errno) : "done");
      CHECK(dlopen("libm.so.6", RTLD_NOW) == NULL);
    }
    if (resource == RLIMIT_AS) {
      void *p = malloc((size_t)1 << 30);
      printf("malloc of 1 GiB: %s\n", p ? "done" : "refused");
    }
    work(how);
    exit(0);
  }
  int st;
  CHECK(waitpid(pid, &st, 0) == pid);
  printf("%s: status %x\n", how, st);
  fflush(stdout);
}

int main(int argc, char **argv) {
  struct rlimit r;
  if (argc > 1) {
    CHECK(getrlimit(RLIMIT_STACK, &r) == 0);
    printf("again, stack %llu\n", (unsigned long long)r.rlim_cur);
    work("a large stack");
    return 9;
  }
  in_child("no descriptors", RLIMIT_NOFILE, 3);
  in_child("no descriptors at all", RLIMIT_NOFILE, 0);
  in_child("no pending signals", RLIMIT_SIGPENDING, 0);
  in_child("no locked memory", RLIMIT_MEMLOCK, 0);
  in_child("no core", RLIMIT_CORE, 0);
  in_child("little address space", RLIMIT_AS, 400 << 20);
  in_child("no data segment", RLIMIT_DATA, 0);
  CHECK(getrlimit(RLIMIT_NOFILE, &r) == 0);
  r.rlim_cur = r.rlim_max;
  CHECK(setrlimit(RLIMIT_NOFILE, &r) == 0);
  work("all descriptors");
  CHECK(getrlimit(RLIMIT_STACK, &r) == 0);
  r.rlim_cur = r.rlim_max == RLIM_INFINITY ? (rlim_t)256 << 20 : r.rlim_max;
  CHECK(setrlimit(RLIMIT_STACK, &r) == 0);
  work("a raised stack");
  execl("/proc/self/exe", argv[0], "again", (char *)NULL);
  return 98;
}
