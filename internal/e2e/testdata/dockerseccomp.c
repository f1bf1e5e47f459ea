/* Runs argv[1..] under what Docker's default seccomp profile forbids a container without capabilities: EPERM, and ENOSYS for
   clone3. Names: docs.docker.com/engine/security/seccomp. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned refused[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_adjtime, SYS_clock_settime, SYS_delete_module, SYS_fanotify_init, SYS_finit_module,
    SYS_init_module, SYS_ioperm, SYS_iopl, SYS_kcmp, SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl, SYS_lookup_dcookie, SYS_mbind,
    SYS_mount, SYS_move_pages, SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_perf_event_open, SYS_personality, SYS_pivot_root,
    SYS_quotactl, SYS_reboot, SYS_request_key, SYS_setns, SYS_settimeofday, SYS_swapon, SYS_swapoff, SYS_umount2, SYS_unshare,
    SYS_userfaultfd, SYS_ustat, SYS_vhangup, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
};

int main(int argc, char **argv) {
  enum { N = sizeof refused / sizeof *refused };
  struct sock_filter f[N + 5];
  int n = 0;
  f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, N + 2, 0);
  for (int i = 0; i < N; i++) f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused[i], N - i, 0);
  f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
  struct sock_fprog filter = {(unsigned short)n, f};
  if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
    perror("seccomp");
    return 125;
  }
  execvp(argv[1], argv + 1);
  perror(argv[1]);
  return 127;
}
