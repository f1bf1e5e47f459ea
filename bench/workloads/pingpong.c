/* pingpong: one byte to and fro between two threads over two pipes; every read blocks. */
#include "workload.h"

static long rounds;
static int there[2], back[2];

NOINLINE static void pass(int from, int to) {
  char c;
  if (read(from, &c, 1) != 1 || write(to, &c, 1) != 1)
    abort();
}

static void *body(void *arg) {
  for (long i = 0; i < rounds; i++)
    pass(there[0], back[1]);
  return arg;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 120000);
  pthread_t t;
  if (pipe(there) || pipe(back))
    return 1;
  pthread_create(&t, NULL, body, NULL);
  if (write(there[1], "x", 1) != 1)
    return 1;
  for (long i = 1; i < rounds; i++)
    pass(back[0], there[1]);
  char c;
  if (read(back[0], &c, 1) != 1)
    return 1;
  pthread_join(t, NULL);
  return workload_end((uint64_t)c);
}
