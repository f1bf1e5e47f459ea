/* jump: siglongjmp out of blocked calls by a signal handler, longjmp out of deep frames; afterwards the same
 * thread must block, sleep, lock and allocate as if nothing had been. */
#include "check.h"
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/select.h>
#include <sys/time.h>

static sigjmp_buf back;
static volatile sig_atomic_t armed, jumps;
static int pipefd[2];
static sem_t never;

static void on_alarm(int sig) {
  (void)sig;
  if (armed) {
    armed = 0;
    jumps++;
    siglongjmp(back, 1);
  }
}

static void arm(void) {
  struct itimerval in = {.it_value = {0, 2000}};
  armed = 1;
  CHECK(setitimer(ITIMER_REAL, &in, NULL) == 0);
}

__attribute__((noinline)) static void deeper(int n, void (*f)(void)) {
  volatile char pad[100];
  pad[0] = 1;
  if (n)
    deeper(n - 1, f);
  else
    f();
  pad[1] = pad[0];
}

static void do_read(void) {
  char c;
  arm();
  CHECK(read(pipefd[0], &c, 1) == 12345);
}
static void do_poll(void) {
  arm();
  CHECK(poll(NULL, 0, -1) == 12345);
}
static void do_select(void) {
  arm();
  CHECK(select(0, NULL, NULL, NULL, NULL) == 12345);
}
static void do_nanosleep(void) {
  arm();
  CHECK(nanosleep(&(struct timespec){100, 0}, NULL) == 12345);
}
static void do_sem(void) {
  arm();
  CHECK(sem_wait(&never) == 12345);
}
static void do_pause(void) {
  arm();
  CHECK(pause() == 12345);
}
static void do_spin(void) {
  arm();
  for (;;)
    burn_ns(1000000);
}

static void normal_life(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  int64_t t0 = mono_ns();
  CHECK(poll(NULL, 0, 1) == 0);
  CHECK(usleep(500) == 0);
  CHECK(mono_ns() - t0 >= 1500000);
  pthread_mutex_lock(&lock);
  free(malloc(100));
  pthread_mutex_unlock(&lock);
  CHECK(write(pipefd[1], "x", 1) == 1);
  char c;
  CHECK(read(pipefd[0], &c, 1) == 1 && c == 'x');
}

static jmp_buf plain;
__attribute__((noinline)) static void sink(int n) {
  char *p = malloc(32);
  CHECK(p);
  free(p);
  if (n == 0)
    longjmp(plain, 3);
  sink(n - 1);
  __asm__ volatile("");
}

int main(void) {
  CHECK(pipe(pipefd) == 0);
  CHECK(sem_init(&never, 0, 0) == 0);
  struct sigaction sa = {.sa_handler = on_alarm};
  CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
  void (*const calls[])(void) = {do_read, do_poll, do_select, do_nanosleep, do_sem, do_pause, do_spin};
  volatile int want = 0;
  for (volatile int round = 0; round < 15; round++)
    for (volatile unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
      if (sigsetjmp(back, 1) == 0) {
        want++;
        deeper(round * 3, calls[i]);
        CHECK(!"came back without a jump");
      }
      normal_life();
    }
  CHECK(jumps == want);
  for (volatile int i = 0; i < 2000; i++) {
    int r = setjmp(plain);
    if (r == 0)
      sink(i % 60);
    CHECK(r == 3);
  }
  normal_life();
  printf("jump ok, %d jumps\n", (int)jumps);
  return 0;
}
