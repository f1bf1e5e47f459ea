/* A server with an event loop that answers a timer 200 times a second. Once in a while (argv[1] seconds) it clears its table of
   sessions, which takes the better part of a second, argv[2] times: everybody waits. docs/flight-recorder.md finds out why. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SESSIONS 8192

static struct session {
  uint64_t id, used;
  char name[48];
} sessions[SESSIONS];

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint64_t hash(const char *s) {
  uint64_t h = 1469598103934665603u;
  for (; *s; s++) h = (h ^ (uint64_t)(unsigned char)*s) * 1099511628211u;
  return h;
}

__attribute__((noinline)) static void answer(uint64_t n) {
  struct session *s = &sessions[n % SESSIONS];
  snprintf(s->name, sizeof s->name, "client-%llu", (unsigned long long)n);
  s->id = hash(s->name);
  s->used = n;
}

/* Every session is compared with every other one. */
__attribute__((noinline)) static int find_duplicates(void) {
  int n = 0;
  for (int i = 0; i < SESSIONS; i++)
    for (int j = 0; j < i; j++) n += hash(sessions[i].name) == hash(sessions[j].name);
  return n;
}

__attribute__((noinline)) static int expire_sessions(int times) {
  int n = 0;
  while (times-- > 0) n += find_duplicates();
  memset(sessions, 0, sizeof sessions);
  return n;
}

int main(int argc, char **argv) {
  double every = argc > 1 ? atof(argv[1]) : 60, next = seconds() + every;
  int times_over = argc > 2 ? atoi(argv[2]) : 1;
  int timer = timerfd_create(CLOCK_MONOTONIC, 0), loop = epoll_create1(0);
  struct itimerspec often = {{0, 5000000}, {0, 5000000}};
  struct epoll_event e = {.events = EPOLLIN};
  timerfd_settime(timer, 0, &often, NULL);
  epoll_ctl(loop, EPOLL_CTL_ADD, timer, &e);
  volatile int duplicates = 0;
  for (uint64_t n = 0;; n++) {
    uint64_t times;
    epoll_wait(loop, &e, 1, -1);
    if (read(timer, &times, sizeof times) != sizeof times) return 1;
    for (int i = 0; i < 20; i++) answer(n * 20 + (uint64_t)i);
    if (seconds() >= next) {
      duplicates += expire_sessions(times_over);
      next = seconds() + every;
    }
  }
}
