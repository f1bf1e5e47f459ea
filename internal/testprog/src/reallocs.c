/* reallocs: threads that move blocks all the time, so that what one gives back another has at once. */
#include "check.h"

static void *body(void *arg) {
  uint64_t x = 88172645463325252ull + (uintptr_t)arg;
  char *keep[8] = {0};
  size_t size[8] = {0};
  for (int i = 0; i < 4000; i++) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    int k = (int)(x % 8);
    size_t n = 16 + (x >> 8) % 3000;
    char *p = realloc(keep[k], n);
    CHECK(p);
    CHECK(size[k] == 0 || p[0] == (char)size[k]);
    p[0] = (char)n;
    keep[k] = p;
    size[k] = n;
  }
  for (int k = 0; k < 8; k++) free(keep[k]);
  return NULL;
}

int main(void) {
  pthread_t t[6];
  for (uintptr_t i = 0; i < 6; i++) CHECK_RC(pthread_create(&t[i], NULL, body, (void *)i), 0);
  for (int i = 0; i < 6; i++) CHECK_RC(pthread_join(t[i], NULL), 0);
  puts("reallocs ok");
  return 0;
}
