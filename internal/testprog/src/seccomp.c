/* seccomp.c: a program that shuts itself into a sandbox, as sshd, man and browsers do, and then goes on allocating,
 * locking and computing. Whatever the sandbox does not know must not be called on its behalf: it would be killed.
 * Argument: strict, kill (a filter that kills) or errno (one that refuses). */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void shut_in(const char *how) {
  if (strcmp(how, "strict") == 0) {
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    return;
  }
  unsigned other = strcmp(how, "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
#define ALLOW(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit), ALLOW(SYS_brk), ALLOW(SYS_rt_sigreturn), ALLOW(SYS_futex),
      BPF_STMT(BPF_RET | BPF_K, other),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  void *kept[64];
  for (int i = 0; i < 64; i++)
    CHECK((kept[i] = malloc(1000)) != NULL);
  shut_in(argv[1]);
  for (int i = 0; i < 64; i++)
    free(kept[i]);
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  volatile uint64_t x = 1;
  for (int round = 0; round < 400; round++) { /* about 200 ms: no clock may be asked here */
    for (int i = 0; i < 200000; i++)
      x = x * 6364136223846793005ull + 1;
    pthread_mutex_lock(&m);
    void *p = malloc(64);
    free(p);
    pthread_mutex_unlock(&m);
  }
  static const char done[] = "still here\n";
  if (write(1, done, sizeof done - 1) != sizeof done - 1)
    syscall(SYS_exit, 98);
  syscall(SYS_exit, 7); /* exit_group is more than strict mode knows */
}
