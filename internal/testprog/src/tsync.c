/* tsync.c: processes whose threads compute, allocate, lock and wait while one of them confines all at once, by a
 * filter that kills whoever makes another call than these threads do. The signal's return is not among those: nobody
 * sends them one. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS = 4, CHILDREN = 12 };

static _Atomic int rounds[THREADS], stop;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int pipes[2];

static void *worker(void *arg) {
  volatile uint64_t x = 1;
  char c = 1;
  while (!stop) {
    for (int i = 0; i < 3000; i++)
      x = x * 6364136223846793005ull + 1;
    pthread_mutex_lock(&mutex);
    free(malloc(300));
    pthread_mutex_unlock(&mutex);
    if (write(pipes[1], &c, 1) != 1 || read(pipes[0], &c, 1) != 1)
      syscall(SYS_exit, 3);
    ++*(_Atomic int *)arg;
  }
  return NULL;
}

static int child(long way) {
  pthread_t t[THREADS];
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_brk), ALLOW(SYS_mmap),
      ALLOW(SYS_munmap), ALLOW(SYS_madvise), ALLOW(SYS_mprotect), ALLOW(SYS_futex), ALLOW(SYS_rt_sigprocmask),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  CHECK(pipe(pipes) == 0);
  for (long i = 0; i < THREADS; i++)
    CHECK_RC(pthread_create(&t[i], NULL, worker, &rounds[i]), 0);
  for (int i = 0; i < THREADS; i++) /* its heap is there */
    while (rounds[i] < 50)
      usleep(500);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  if (way)
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
  else /* this thread alone */
    CHECK(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0);
  for (int i = 0; i < THREADS; i++)
    for (int from = rounds[i]; rounds[i] < from + 50;) {}
  stop = 1;
  for (int i = 0; i < THREADS; i++)
    pthread_join(t[i], NULL);
  syscall(SYS_exit_group, 7);
  return 0;
}

int main(void) {
  for (int i = 0; i < CHILDREN; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
      return child(i % 4);
    int status;
    while (waitpid(pid, &status, 0) != pid) {}
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
  }
  puts("tsync ok");
  return 0;
}
