/* fdreuse: descriptors that come to mean something else at once. For each of ROUNDS pairs of numbers: a thread writes to a pipe
 * that the first thread waits for with read(); both ends are closed, the numbers are given to two other pipes, of which the
 * first thread reads one with readv(), a child process writes that one, and the thread writes the other meanwhile. */
#include "check.h"
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, FIRST = 100 };
static int go[2], to;

static void *writer(void *arg) {
  char c;
  while (read(go[0], &c, 1) == 1) {
    await_asleep(getpid()); /* the first thread, in its read */
    usleep(400);
    CHECK(write(to, "x", 1) == 1);
  }
  return arg;
}

int main(void) {
  int ask[2], answer[2], other[2];
  char c;
  CHECK(pipe(go) == 0 && pipe(ask) == 0 && pipe(answer) == 0 && pipe(other) == 0);
  pid_t child = fork();
  if (child == 0) {
    close(ask[1]);
    while (read(ask[0], &c, 1) == 1) {
      await_asleep(getppid());
      usleep(900);
      if (write(answer[1], "y", 1) != 1) _exit(1);
    }
    _exit(0);
  }
  pthread_t th;
  CHECK(pthread_create(&th, NULL, writer, NULL) == 0);
  for (int i = 0; i < ROUNDS; i++) {
    int p[2], in = FIRST + 2 * i, out = in + 1;
    CHECK(pipe(p) == 0 && dup2(p[0], in) == in && dup2(p[1], out) == out && close(p[0]) == 0 && close(p[1]) == 0);
    to = out;
    CHECK(write(go[1], "", 1) == 1 && read(in, &c, 1) == 1 && c == 'x');
    CHECK(close(in) == 0 && close(out) == 0);
    CHECK(dup2(answer[0], in) == in && dup2(other[1], out) == out);
    struct iovec v = {&c, 1};
    CHECK(write(ask[1], "", 1) == 1 && write(go[1], "", 1) == 1 && readv(in, &v, 1) == 1 && c == 'y');
    CHECK(read(other[0], &c, 1) == 1 && c == 'x'); /* the thread has written, before the numbers change again */
    CHECK(close(in) == 0 && close(out) == 0);
  }
  CHECK(close(go[1]) == 0 && close(ask[1]) == 0 && pthread_join(th, NULL) == 0);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  puts("done");
  return 0;
}
