/* echo: copies stdin to stdout through read and write, and says on stderr how much it was. */
#include "check.h"

int main(void) {
  static char buf[3000];
  long total = 0;
  ssize_t n;
  while ((n = read(0, buf, sizeof buf)) > 0) {
    for (ssize_t at = 0; at < n;) {
      ssize_t w = write(1, buf + at, (size_t)(n - at));
      CHECK(w > 0);
      at += w;
    }
    total += n;
  }
  CHECK(n == 0);
  fprintf(stderr, "%ld bytes\n", total);
  return 0;
}
