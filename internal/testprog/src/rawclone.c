/* rawclone: threads and processes that pthread_create and fork know nothing of: clone() with a stack of its own that
 * shares everything (its thread-local storage is its maker's!), clone as fork, clone as vfork, clone3, unshared files. They
 * call wrapped functions, while their maker does as well. */
#include "check.h"
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { STACK = 65536, ROUNDS = 12 };

static int pipes[2];
static int shared;

/* Only calls that touch no state of libc but errno: the thread pointer is the maker's. */
static int body(void *arg) {
  int n = (int)(intptr_t)arg;
  char c = (char)('a' + n % 26);
  for (int i = 0; i < 20; i++) {
    struct timespec ts = {0, 200000};
    nanosleep(&ts, NULL);
    poll(NULL, 0, 0);
  }
  __atomic_add_fetch(&shared, 1, __ATOMIC_SEQ_CST);
  return write(pipes[1], &c, 1) == 1 ? n : 99;
}

static void reap(pid_t pid, int want) {
  int st;
  CHECK(pid > 0);
  CHECK(waitpid(pid, &st, __WALL) == pid);
  CHECK(WIFEXITED(st) && WEXITSTATUS(st) == want);
}

int main(void) {
  CHECK(pipe(pipes) == 0);
  char *stack = mmap(NULL, STACK * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  int in_pipe = 0;
  for (int n = 0; n < ROUNDS; n++) {
    /* beside us, in our memory; a process for wait, a user of our thread pointer */
    pid_t pid = clone(body, stack + STACK, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, (void *)(intptr_t)n);
    for (int i = 0; i < 5; i++) {
      struct timespec ts = {0, 300000};
      nanosleep(&ts, NULL);
      burn_ns(300000);
    }
    reap(pid, n);
    in_pipe++;
  }
  CHECK(shared == ROUNDS);
  for (int n = 0; n < ROUNDS; n++) { /* as vfork: we sleep meanwhile */
    reap(clone(body, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)(intptr_t)n), n);
    in_pipe++;
  }
  CHECK(shared == 2 * ROUNDS);
  for (int n = 0; n < ROUNDS; n++) { /* as fork, with a stack */
    reap(clone(body, stack + STACK, SIGCHLD, (void *)(intptr_t)n), n);
    in_pipe++;
  }
  CHECK(shared == 2 * ROUNDS);
  for (int n = 0; n < ROUNDS; n++) { /* as fork, by the bare system calls */
    struct {
      uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } args = {.exit_signal = SIGCHLD};
    long pid = n % 2 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0) {
      void *p = malloc(1000);
      poll(NULL, 0, 1);
      free(p);
      _exit(body((void *)(intptr_t)n));
    }
    reap((pid_t)pid, n);
    in_pipe++;
  }
  CHECK(shared == 2 * ROUNDS);
  char buf[256];
  CHECK(read(pipes[0], buf, sizeof buf) == in_pipe);
  puts("rawclone ok");
  return 0;
}
