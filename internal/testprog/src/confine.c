/* confine: takes system calls away from what it starts, as sandboxes' launchers do.
 * usage: confine (errno|kill) (exec|system) CALLS PROGRAM [ARGUMENT…]; CALLS are numbers, with commas */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { MOST = 100 };

int main(int argc, char **argv) {
  CHECK(argc >= 5);
  struct sock_filter filter[2 * MOST + 2] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  unsigned short n = 1;
  unsigned then = strcmp(argv[1], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
  for (char *s = argv[3]; *s && n < 2 * MOST; s += *s == ',') {
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)strtoul(s, &s, 10), 0, 1);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, then);
  }
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog program = {n, filter};
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  if (strcmp(argv[2], "system") == 0) {
    int status = system(argv[4]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
  }
  execv(argv[4], argv + 4);
  return 97;
}
