/* output: 8 MiB to stdout and 1 MiB to stderr, by stdio and by write, from two threads. */
#include "check.h"

static void *err(void *arg) {
  for (int i = 0; i < 1 << 14; i++)
    fprintf(stderr, "%063d\n", i);
  return arg;
}

int main(void) {
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, err, NULL), 0);
  for (int i = 0; i < 1 << 16; i++)
    printf("%063d\n", i);
  fflush(stdout);
  static char line[4096];
  for (int i = 0; i < 1024; i++) {
    memset(line, 'a' + i % 26, sizeof line);
    line[sizeof line - 1] = '\n';
    for (size_t at = 0; at < sizeof line;) {
      ssize_t w = write(1, line + at, sizeof line - at);
      CHECK(w > 0);
      at += (size_t)w;
    }
  }
  CHECK_RC(pthread_join(t, NULL), 0);
  return 0;
}
