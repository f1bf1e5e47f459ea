/* truth: threads that wait for each other in known ways, and write down what they know: who waited, for what, from when
 * to when, and who let them go on. usage: truth SCENARIO ROUNDS FILE. A line of FILE is
 *   SCENARIO tid start_ns end_ns object releaser_tid function
 * with CLOCK_MONOTONIC taken around the waiting call; function is where the releaser had taken the lock, - where it is none. The releaser is written by whoever lets go, where the object itself
 * keeps it from being overwritten before the waiter has read it; 0 where nobody can know. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_LINES = 1 << 16, MAX_THREADS = 9 };
struct line {
  int tid, releaser;
  uint64_t start, end;
  const void *object;
  const char *taken;
};
static struct line lines[MAX_THREADS][MAX_LINES];
static int counts[MAX_THREADS];
static int rounds;
static const char *scenario;

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static int tid(void) {
  static __thread int id;
  return id ? id : (id = (int)syscall(SYS_gettid));
}
static void waited_taken(int self, uint64_t start, const void *object, int releaser, const char *taken) {
  if (counts[self] < MAX_LINES) lines[self][counts[self]++] = (struct line){tid(), releaser, start, now(), object, taken};
}
static void waited(int self, uint64_t start, const void *object, int releaser) {
  waited_taken(self, start, object, releaser, "-");
}
static void spin_us(unsigned us) {
  uint64_t until = now() + us * 1000u;
  while (now() < until) {
  }
}
static unsigned random_us(unsigned *seed, unsigned lo, unsigned hi) { return lo + (unsigned)rand_r(seed) % (hi - lo); }

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static pthread_barrier_t barrier;
static atomic_int last; /* who let go of the lock last: written before it is let go */

static const char *volatile took = "-"; /* where who let go last had taken it: written before it is let go */

/* Three ways to take the lock; all let go in mutex_body. */
__attribute__((noinline)) static void take_left(void) {
  pthread_mutex_lock(&mutex);
  __asm__ volatile("");
}
__attribute__((noinline)) static void take_right(void) {
  pthread_mutex_lock(&mutex);
  __asm__ volatile("");
}
__attribute__((noinline)) static void take_trying(void) {
  if (pthread_mutex_trylock(&mutex)) pthread_mutex_lock(&mutex);
  __asm__ volatile("");
}

static void *mutex_body(void *arg) {
  int self = (int)(intptr_t)arg;
  unsigned seed = (unsigned)self + 1;
  for (int i = 0; i < rounds; i++) {
    uint64_t t = now();
    (i % 3 == 0 ? take_left : i % 3 == 1 ? take_right : take_trying)();
    waited_taken(self, t, &mutex, last, took);
    if (i % 2)
      usleep(random_us(&seed, 100, 400));
    else
      spin_us(random_us(&seed, 50, 200));
    last = tid();
    took = i % 3 == 0 ? "take_left" : i % 3 == 1 ? "take_right" : "take_trying";
    pthread_mutex_unlock(&mutex);
    usleep(random_us(&seed, 100, 900));
  }
  return NULL;
}

static void *rwlock_body(void *arg) {
  int self = (int)(intptr_t)arg;
  unsigned seed = (unsigned)self + 1;
  for (int i = 0; i < rounds; i++) {
    uint64_t t = now();
    if (self < 2) {
      pthread_rwlock_wrlock(&rwlock);
      waited(self, t, &rwlock, last);
    } else {
      pthread_rwlock_rdlock(&rwlock);
      waited(self, t, &rwlock, 0); /* other readers may have let go meanwhile */
    }
    usleep(random_us(&seed, 100, 300));
    last = tid();
    pthread_rwlock_unlock(&rwlock);
    usleep(random_us(&seed, 200, 900));
  }
  return NULL;
}

static int queued;
static int inside; /* signal while the mutex is held */
static void *cond_body(void *arg) {
  int self = (int)(intptr_t)arg;
  unsigned seed = 1;
  for (int i = 0; i < rounds; i++) {
    if (self == 0) { /* the only one that waits: whoever signals lets it go on */
      pthread_mutex_lock(&mutex);
      while (!queued) {
        uint64_t t = now();
        pthread_cond_wait(&cond, &mutex);
        waited(self, t, &cond, last);
      }
      queued--;
      pthread_mutex_unlock(&mutex);
    } else {
      usleep(random_us(&seed, 200, 700));
      pthread_mutex_lock(&mutex);
      queued++;
      last = tid();
      if (inside) pthread_cond_signal(&cond);
      pthread_mutex_unlock(&mutex);
      if (!inside) pthread_cond_signal(&cond);
    }
  }
  return NULL;
}

static void *sem_body(void *arg) {
  int self = (int)(intptr_t)arg;
  unsigned seed = 1;
  for (int i = 0; i < rounds; i++) {
    if (self == 0) {
      uint64_t t = now();
      sem_wait(&sem);
      waited(self, t, &sem, last);
    } else {
      usleep(random_us(&seed, 200, 700));
      last = tid();
      sem_post(&sem);
    }
  }
  return NULL;
}

/* Six threads take what three others put into a queue: who ended which wait only the kernel knows. */
enum { TAKERS = 6, PUTTERS = 3 };
static void *pool_body(void *arg) {
  int self = (int)(intptr_t)arg, by_sem = !strcmp(scenario, "pool-semaphore");
  unsigned seed = (unsigned)self + 1;
  for (int i = 0; i < rounds * (self < TAKERS ? PUTTERS : TAKERS); i++) {
    if (by_sem) {
      if (self < TAKERS)
        sem_wait(&sem), spin_us(random_us(&seed, 5, 100));
      else
        usleep(random_us(&seed, 10, 300)), sem_post(&sem);
      continue;
    }
    if (self >= TAKERS) usleep(random_us(&seed, 10, 300));
    pthread_mutex_lock(&mutex);
    if (self < TAKERS) {
      while (!queued) pthread_cond_wait(&cond, &mutex);
      queued--;
      pthread_mutex_unlock(&mutex);
      spin_us(random_us(&seed, 5, 100));
    } else {
      queued++;
      if (inside) pthread_cond_signal(&cond);
      pthread_mutex_unlock(&mutex);
      if (!inside) pthread_cond_signal(&cond);
    }
  }
  return NULL;
}

static atomic_int arrived, arrivals[MAX_LINES];
static void *barrier_body(void *arg) {
  int self = (int)(intptr_t)arg;
  unsigned seed = (unsigned)self + 1;
  for (int i = 0; i < rounds && i < MAX_LINES; i++) {
    usleep(random_us(&seed, 100, 900));
    uint64_t t = now();
    if (atomic_fetch_add(&arrived, 1) % 4 == 3) arrivals[i] = tid();
    int r = pthread_barrier_wait(&barrier);
    if (r != PTHREAD_BARRIER_SERIAL_THREAD && arrivals[i] != tid()) waited(self, t, &barrier, arrivals[i]);
  }
  return NULL;
}

/* One thread reads what one of two others writes, in turns, through a channel of the scenario's kind. */
static int channel[2]; /* to read from, to write to */
static int open_channel(void) {
  if (strstr(scenario, "eventfd")) return channel[0] = channel[1] = eventfd(0, 0), channel[0] < 0;
  if (!strcmp(scenario, "socketpair")) return socketpair(AF_UNIX, SOCK_STREAM, 0, channel);
  if (strcmp(scenario, "tcp")) return pipe(channel);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  int l = socket(AF_INET, SOCK_STREAM, 0);
  channel[1] = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(l, (void *)&a, n) || listen(l, 1) || getsockname(l, (void *)&a, &n) || connect(channel[1], (void *)&a, n)) return 1;
  return (channel[0] = accept(l, NULL, NULL)) < 0;
}
static atomic_int taken_turn;
/* pipe-later: at first another process writes, whom nobody here can name; its rounds come before those of the threads. */
static int others_rounds;
static pid_t other_writer(void) {
  others_rounds = rounds;
  pid_t child = fork();
  if (child) return child;
  uint64_t v = 1;
  for (int i = 0; i < rounds; i++) {
    usleep(600);
    if (write(channel[1], &v, sizeof v) != sizeof v) _exit(1);
  }
  _exit(0);
}
static void *channel_body(void *arg) {
  int self = (int)(intptr_t)arg, polls = !strncmp(scenario, "epoll", 5), epoll = -1;
  unsigned seed = (unsigned)self + 1;
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = &e};
  if (self == 0 && polls && ((epoll = epoll_create1(0)) < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, channel[0], &e))) exit(1);
  for (int i = 0; i < others_rounds + rounds; i++) {
    uint64_t v = 1;
    if (self == 0) {
      uint64_t t = now();
      if (polls && epoll_wait(epoll, &e, 1, -1) != 1) exit(1);
      if (polls) waited(self, t, NULL, last);
      if (read(channel[0], &v, sizeof v) != sizeof v) exit(1);
      if (!polls) waited(self, t, NULL, i < others_rounds ? 0 : last);
      taken_turn = i + 1;
    } else if (i >= others_rounds && i % 2 == self - 1) {
      while (taken_turn < i) usleep(50); /* nobody writes ahead */
      usleep(random_us(&seed, 300, 800));
      last = tid();
      if (write(channel[1], &v, sizeof v) != sizeof v) exit(1);
    }
  }
  return NULL;
}

/* Five threads: each takes its own lock, then wants the next one's; the last sleeps with its lock held. */
static pthread_mutex_t chain[5] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                   PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static int holder_of[5];
static void *chain_body(void *arg) {
  int self = (int)(intptr_t)arg;
  for (int i = 0; i < rounds; i++) {
    pthread_barrier_wait(&barrier);
    usleep((unsigned)(4 - self) * 2000);
    pthread_mutex_lock(&chain[self]);
    if (self < 4) {
      uint64_t t = now();
      pthread_mutex_lock(&chain[self + 1]);
      waited(self, t, &chain[self + 1], holder_of[self + 1]);
      pthread_mutex_unlock(&chain[self + 1]);
    } else {
      usleep(20000);
    }
    holder_of[self] = tid();
    pthread_mutex_unlock(&chain[self]);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  scenario = argv[1];
  rounds = atoi(argv[2]);
  static const struct {
    const char *name;
    void *(*body)(void *);
    int threads;
  } all[] = {{"mutex", mutex_body, 4},     {"rwlock", rwlock_body, 5}, {"condvar-inside", cond_body, 2},
             {"condvar-outside", cond_body, 2}, {"semaphore", sem_body, 2}, {"barrier", barrier_body, 4},
             {"chain", chain_body, 5},  {"pipe", channel_body, 3}, {"eventfd", channel_body, 3}, {"socketpair", channel_body, 3},
             {"tcp", channel_body, 3},  {"pipe-later", channel_body, 3}, {"epoll-pipe", channel_body, 3}, {"epoll-eventfd", channel_body, 3},
             {"pool-inside", pool_body, TAKERS + PUTTERS}, {"pool-outside", pool_body, TAKERS + PUTTERS},
             {"pool-semaphore", pool_body, TAKERS + PUTTERS}};
  for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
    if (strcmp(all[k].name, scenario)) continue;
    if (all[k].body == channel_body && open_channel()) return 1;
    pid_t other = strcmp(scenario, "pipe-later") ? 0 : other_writer();
    if (other < 0) return 1;
    inside = !strstr(scenario, "outside");
    sem_init(&sem, 0, 0);
    pthread_barrier_init(&barrier, NULL, (unsigned)all[k].threads);
    pthread_t t[MAX_THREADS];
    for (int i = 0; i < all[k].threads; i++) {
      char name[16];
      pthread_create(&t[i], NULL, all[k].body, (void *)(intptr_t)i);
      snprintf(name, sizeof name, "t%d", i);
      pthread_setname_np(t[i], name);
    }
    for (int i = 0; i < all[k].threads; i++) pthread_join(t[i], NULL);
    if (other && waitpid(other, NULL, 0) != other) return 1;
    FILE *f = fopen(argv[3], "w");
    if (!f) return 1;
    for (int i = 0; i < all[k].threads; i++)
      for (int j = 0; j < counts[i]; j++)
        fprintf(f, "%s %d %llu %llu %llu %d %s\n", scenario, lines[i][j].tid, (unsigned long long)lines[i][j].start,
                (unsigned long long)lines[i][j].end, (unsigned long long)(uintptr_t)lines[i][j].object, lines[i][j].releaser,
                lines[i][j].taken);
    return fclose(f) != 0;
  }
  fprintf(stderr, "truth: no scenario %s\n", scenario);
  return 2;
}
