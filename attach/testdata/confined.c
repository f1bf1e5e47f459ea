/* confined: confined NUMBER [late]: a program with a seccomp filter that kills it for a system call. late: it is set at SIGUSR1. SIGTERM ends it. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t stop, now;
static void on_term(int sig) { stop = sig; }
static void on_user(int sig) { now = sig; }

static void confine(unsigned number) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(120);
}

int main(int argc, char **argv) {
  unsigned number = (unsigned)atoi(argv[1]);
  signal(SIGTERM, on_term);
  signal(SIGUSR1, on_user);
  if (argc < 3) confine(number);
  while (!stop) {
    free(malloc(100));
    usleep(1000);
    if (now && argc > 2) confine(number), now = 0, argc = 2;
  }
  printf("RIGHT\n");
  return 0;
}
