/* heap: memory with a known owner: 64 MiB that keep() allocates in pieces of 4 KiB and another thread frees half of,
 * and 128 MiB that churn() allocates and frees at once. Prints what is left. */
#include "check.h"

enum { PIECE = 4096, KEPT = 16384, CHURNED = 32768 };
static char *kept[KEPT];
static void *(*volatile take)(size_t) = malloc; /* hidden from the optimiser */

__attribute__((noinline)) static void keep(void) {
  for (int i = 0; i < KEPT; i++) {
    CHECK((kept[i] = take(PIECE)) != NULL);
    kept[i][0] = 1;
  }
}

__attribute__((noinline)) static void churn(void) {
  for (int i = 0; i < CHURNED; i++) {
    char *p = take(PIECE);
    CHECK(p != NULL);
    p[0] = 1;
    free(p);
  }
}

static void *free_half(void *arg) {
  for (int i = 0; i < KEPT; i += 2) free(kept[i]);
  return arg;
}

int main(void) {
  pthread_t t;
  keep();
  churn();
  CHECK_RC(pthread_create(&t, NULL, free_half, NULL), 0);
  CHECK_RC(pthread_join(t, NULL), 0);
  int left = 0;
  for (int i = 1; i < KEPT; i += 2) left += kept[i][0];
  printf("%d pieces left\n", left);
  return 0;
}
