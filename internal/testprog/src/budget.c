/* budget: argv[1] threads that work with argv[3] frames on their stacks and then wait (argv[4] "hot": for a lock that others wait
 * for, too), argv[2] that sleep in a system call of their own making, which nobody sees; prints the process's private memory, how much more there is on the threads' stacks, and
 * how much of the first lies in the mapped file of the recorder's, if there is one. */
#include "check.h"
#include <sys/mman.h>
#include <sys/syscall.h>

enum { MOST = 2000, STACK = 256 << 10, PAGE = 4096 };

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int there, go, depth, hot;
static uint32_t woken;

static void arrived(void) {
  pthread_mutex_lock(&m);
  there++;
  pthread_cond_broadcast(&changed);
  while (!go)
    pthread_cond_wait(&changed, &m);
  pthread_mutex_unlock(&m);
}

static __attribute__((noinline)) void deeper(int n) {
  volatile char room[64];
  room[n % 64] = 1;
  if (n > 0)
    return deeper(n - 1), (void)room[0];
  for (int i = 0; i < 6; i++) {
    burn_ns(1000000);
    void *volatile p = malloc(100);
    free(p);
  }
  usleep(100);
}

static long raw_futex(uint32_t *at, int op, uint32_t value) {
  long r;
  register long r10 __asm__("r10") = 0;
  __asm__ volatile("syscall" : "=a"(r) : "a"(SYS_futex), "D"(at), "S"(op), "d"(value), "r"(r10) : "rcx", "r11", "memory");
  return r;
}

static void *sleeps(void *arg) {
  __atomic_add_fetch(&there, 1, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&woken, __ATOMIC_SEQ_CST))
    raw_futex(&woken, 0 /* FUTEX_WAIT */, 0);
  return arg;
}

/* Waits for the lock until its holder has slept: from then on the recorder keeps where it is taken. */
static void *waits(void *arg) {
  pthread_mutex_lock(&m);
  pthread_mutex_unlock(&m);
  return arg;
}

static void make_hot(void) {
  pthread_t t;
  pthread_mutex_lock(&m);
  CHECK_RC(pthread_create(&t, NULL, waits, NULL), 0);
  while (__atomic_load_n((uint32_t *)&m, __ATOMIC_SEQ_CST) < 2) /* glibc's lock word: 2 while somebody waits */
    usleep(1000);
  usleep(2000);
  pthread_mutex_unlock(&m);
  CHECK_RC(pthread_join(t, NULL), 0);
}

static void *works(void *arg) {
  deeper(depth);
  if (!hot)
    return sleeps(arg);
  arrived();
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc >= 4);
  int workers = atoi(argv[1]), sleepers = atoi(argv[2]);
  depth = atoi(argv[3]);
  hot = argc > 4 && !strcmp(argv[4], "hot");
  pthread_t t[MOST];
  CHECK(workers + sleepers <= MOST);
  size_t bytes = (size_t)MOST * STACK; /* between pages that keep it apart from other mappings */
  char *stacks = mmap(NULL, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(stacks != MAP_FAILED && mprotect(stacks += PAGE, bytes, PROT_READ | PROT_WRITE) == 0);
  pthread_attr_t attr;
  CHECK_RC(pthread_attr_init(&attr), 0);
  for (int i = 0; i < sleepers; i++) {
    CHECK_RC(pthread_attr_setstack(&attr, stacks + (size_t)(workers + i) * STACK, STACK), 0);
    CHECK_RC(pthread_create(&t[workers + i], &attr, sleeps, NULL), 0);
  }
  while (__atomic_load_n(&there, __ATOMIC_SEQ_CST) < sleepers)
    usleep(1000);
  if (hot)
    make_hot();
  for (int i = 0; i < workers; i++) {
    CHECK_RC(pthread_attr_setstack(&attr, stacks + (size_t)i * STACK, STACK), 0);
    CHECK_RC(pthread_create(&t[i], &attr, works, NULL), 0);
    /* one after the other, so that each is alone in what it does */
    if (hot) {
      pthread_mutex_lock(&m);
      while (there < sleepers + i + 1)
        pthread_cond_wait(&changed, &m);
      pthread_mutex_unlock(&m);
    } else {
      while (__atomic_load_n(&there, __ATOMIC_SEQ_CST) < sleepers + i + 1)
        usleep(1000);
    }
  }
  long sum[3] = {0}, kib; /* elsewhere, on stacks, in the recorder's file */
  unsigned long lo, hi;
  int in = 0;
  char line[512];
  static char buffer[1 << 16];
  FILE *f = fopen("/proc/self/smaps", "re");
  CHECK(f);
  setvbuf(f, buffer, _IOFBF, sizeof buffer);
  while (fgets(line, sizeof line, f))
    if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
      in = strstr(line, "/agent-") && strstr(line, ".so") ? 2 : lo >= (unsigned long)stacks && hi <= (unsigned long)stacks + bytes;
    else if (sscanf(line, "Private_Dirty: %ld kB", &kib) == 1 || (in == 2 && sscanf(line, "Private_Clean: %ld kB", &kib) == 1))
      sum[in] += kib;
  fclose(f);
  printf("%ld KiB private, %ld KiB on stacks, %ld KiB in the recorder's file\n", sum[0], sum[1], sum[2]);
  __atomic_store_n(&woken, 1, __ATOMIC_SEQ_CST);
  raw_futex(&woken, 1 /* FUTEX_WAKE */, 1 << 30);
  pthread_mutex_lock(&m);
  go = 1;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&m);
  for (int i = 0; i < workers + sleepers; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  return 0;
}
