/* check.h: how a test program judges itself, and the clock it does it with. */
#ifndef CHECK_H
#define CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Ends the program with status 99 and a line that says where; never compiled out. */
#define CHECK(cond)                                                                                   \
  do {                                                                                                \
    int check_errno_ = errno;                                                                         \
    if (!(cond)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s does not hold (errno %d)\n", __FILE__, __LINE__, #cond, check_errno_); \
      fflush(NULL);                                                                                   \
      _exit(99);                                                                                      \
    }                                                                                                 \
    errno = check_errno_;                                                                             \
  } while (0)

/* For calls that return an error number. */
#define CHECK_RC(call, want)                                                                        \
  do {                                                                                              \
    int check_rc_ = (call);                                                                         \
    if (check_rc_ != (want)) {                                                                      \
      fprintf(stderr, "%s:%d: %s = %d, want %d\n", __FILE__, __LINE__, #call, check_rc_, (int)(want)); \
      fflush(NULL);                                                                                 \
      _exit(99);                                                                                    \
    }                                                                                               \
  } while (0)

static inline int64_t clock_ns(clockid_t id) {
  struct timespec t;
  clock_gettime(id, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t mono_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

static inline struct timespec after_ns(clockid_t id, int64_t ns) {
  int64_t t = clock_ns(id) + ns;
  struct timespec ts = {.tv_sec = t / 1000000000, .tv_nsec = t % 1000000000};
  return ts;
}

/* Uses CPU for about ns nanoseconds of this thread's own time without a system call in between, so that a
 * sampler has reason to look. */
static inline uint64_t burn_ns(int64_t ns) {
  volatile uint64_t x = 88172645463325252ull;
  int64_t end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
  do
    for (int i = 0; i < 20000; i++) {
      uint64_t y = x;
      y ^= y << 13;
      y ^= y >> 7;
      y ^= y << 17;
      x = y;
    }
  while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end);
  return x;
}

/* What stands behind the command's name in /proc/PID/stat; 0 when nobody has this id (any more). No memory is allocated. */
static inline const char *stat_of(pid_t id, char *buf, size_t bytes) {
  char path[40];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)id);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return NULL;
  ssize_t n = read(fd, buf, bytes - 1);
  close(fd);
  if (n <= 0)
    return NULL;
  buf[n] = 0;
  char *end = strrchr(buf, ')');
  return end ? end + 2 : NULL;
}

/* Waits until a thread, by gettid(), sleeps, or is gone: whoever says what it calls next is in that call then, however slow the
 * machine is. */
static inline void await_asleep(pid_t thread) {
  char buf[1024];
  for (const char *s; (s = stat_of(thread, buf, sizeof buf)) && *s != 'S';)
    usleep(200);
}

/* Waits until the process has at most this many threads, those included that are just ending and that nobody joins. */
static inline void await_threads(long most) {
  char buf[1024];
  for (;;) {
    long n = 0;
    const char *s = stat_of(getpid(), buf, sizeof buf);
    CHECK(s && sscanf(s, "%*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %ld", &n) == 1);
    if (n <= most)
      return;
    usleep(1000);
  }
}
#endif
