/* notsc.c: processes that take the cycle counter from one of their threads. They ask no clock themselves, for the
 * vDSO's would read it. With the argument exec also from the program that they execute, which glibc's loader does not
 * survive. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int turn;

static void *other(void *arg) {
  for (int i = 0; i < 300; i++) {
    CHECK_RC(pthread_mutex_lock(&mutex), 0);
    while (turn != 1)
      pthread_cond_wait(&cond, &mutex);
    turn = 0;
    pthread_cond_broadcast(&cond);
    CHECK_RC(pthread_mutex_unlock(&mutex), 0);
    free(malloc(5000));
    CHECK(sem_post(&sem) == 0);
  }
  return arg;
}

static void work(void) {
  pthread_t t;
  int p[2];
  char c = 0;
  CHECK_RC(pthread_create(&t, NULL, other, NULL), 0);
  CHECK(pipe(p) == 0);
  volatile uint64_t x = 1;
  for (int i = 0; i < 300; i++) {
    for (int k = 0; k < 100000; k++)
      x = x * 6364136223846793005ull + 1;
    CHECK_RC(pthread_mutex_lock(&mutex), 0);
    turn = 1;
    pthread_cond_signal(&cond);
    while (turn)
      pthread_cond_wait(&cond, &mutex);
    CHECK_RC(pthread_mutex_unlock(&mutex), 0);
    CHECK(write(p[1], &c, 1) == 1 && read(p[0], &c, 1) == 1);
    CHECK(syscall(SYS_futex, &turn, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0) == 0);
    while (sem_wait(&sem)) {}
    free(malloc(40000));
  }
  CHECK(poll(NULL, 0, 1) == 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  CHECK(close(p[0]) == 0 && close(p[1]) == 0);
}

static void *alone(void *arg) {
  CHECK(arg ? syscall(SYS_prctl, PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0 : prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
  work();
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(sem_init(&sem, 0, 0) == 0);
  if (argc > 1 && strcmp(argv[1], "again") == 0) { /* executed without the counter */
    work();
    return 5;
  }
  for (int i = 0; i < 2; i++) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
      pthread_t t;
      work();
      CHECK_RC(pthread_create(&t, NULL, alone, i ? &t : NULL), 0);
      CHECK_RC(pthread_join(t, NULL), 0);
      _exit(3);
    }
    int status;
    while (waitpid(pid, &status, 0) != pid) {}
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  }
  work();
  CHECK(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
  work();
  if (argc < 2)
    return 5;
  execl("/proc/self/exe", argv[0], "again", (char *)NULL);
  return 1;
}
