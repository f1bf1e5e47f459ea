/* Ends by SIGSEGV or, with an argument, by SIGKILL, while a thread waits for a lock that the first thread holds. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int waiter_tid;

static void *wait_for_state(void *unused) {
  prctl(PR_SET_NAME, "waiter");
  waiter_tid = (int)syscall(SYS_gettid);
  pthread_mutex_lock(&state_lock);
  return unused;
}

static int asleep(void) {
  char path[64], text[64] = "";
  snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter_tid);
  int fd = open(path, O_RDONLY);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  return n > 0 && strncmp(text, "202 ", 4) == 0; /* futex, on x86-64 */
}

int main(int argc, char **argv) {
  pthread_t t;
  pthread_mutex_lock(&state_lock);
  pthread_create(&t, NULL, wait_for_state, NULL);
  while (!waiter_tid || !asleep()) usleep(1000);
  for (int i = 0; i < 100; i++) usleep(1000);
  if (argc > 1) kill(getpid(), SIGKILL);
  *(volatile char *)16 = 1;
}
