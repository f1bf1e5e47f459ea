/* jumpwait: siglongjmp out of waits; afterwards nobody waits for those objects, and whoever lets go of them has
 * nothing to say. Before the end a handler jumps inside itself, which leaves the wait that it interrupted alone. */
#include "check.h"
#include <linux/futex.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/syscall.h>

static sigjmp_buf out;
static volatile sig_atomic_t inside, handled;
static sem_t sem, never;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, jumped = PTHREAD_MUTEX_INITIALIZER;
static int word;
static volatile pid_t waiter;

static void on_usr1(int sig) {
  (void)sig;
  sigjmp_buf here;
  handled++;
  if (!inside)
    siglongjmp(out, 1);
  if (sigsetjmp(here, 0) == 0)
    siglongjmp(here, 1);
}

static void *alarms(void *arg) {
  for (int i = 0; i < 9; i++) {
    while (handled != i || !waiter)
      usleep(200);
    await_asleep(waiter);
    usleep(3000); /* long enough to be recorded */
    CHECK_RC(pthread_kill(*(pthread_t *)arg, SIGUSR1), 0);
  }
  return NULL;
}

static void *holder(void *arg) {
  CHECK_RC(pthread_mutex_lock(&jumped), 0);
  CHECK(sem_post(&never) == 0);
  CHECK_RC(pthread_mutex_lock(&held), 0); /* until the jumps are over */
  CHECK_RC(pthread_mutex_unlock(&jumped), 0);
  CHECK_RC(pthread_mutex_unlock(&held), 0);
  return arg;
}

int main(void) {
  struct sigaction sa = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
  CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
  CHECK(sem_init(&sem, 0, 0) == 0 && sem_init(&never, 0, 0) == 0);
  pthread_t self = pthread_self(), a, h;
  CHECK_RC(pthread_mutex_lock(&held), 0);
  CHECK_RC(pthread_create(&h, NULL, holder, NULL), 0);
  while (sem_wait(&never)) {}
  CHECK_RC(pthread_create(&a, NULL, alarms, &self), 0);
  for (volatile int i = 0; i < 8; i++) {
    if (sigsetjmp(out, 1) == 0) {
      waiter = gettid();
      if (i % 3 == 0)
        sem_wait(&sem);
      else if (i % 3 == 1)
        pthread_mutex_lock(&jumped);
      else
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
      CHECK(!"left by a jump");
    }
    waiter = 0;
  }
  CHECK_RC(pthread_mutex_unlock(&held), 0);
  CHECK_RC(pthread_join(h, NULL), 0);
  for (int i = 0; i < 200; i++) { /* nobody waits */
    CHECK(sem_post(&sem) == 0 && sem_wait(&sem) == 0);
    CHECK_RC(pthread_mutex_lock(&jumped), 0);
    CHECK_RC(pthread_mutex_unlock(&jumped), 0);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0) == 0);
  }
  inside = 1;
  struct timespec soon = after_ns(CLOCK_REALTIME, 30000000);
  waiter = gettid();
  while (handled < 9)
    CHECK(sem_timedwait(&sem, &soon) == -1 && (errno == ETIMEDOUT || errno == EINTR));
  CHECK_RC(pthread_join(a, NULL), 0);
  puts("jumpwait ok");
  return 0;
}
