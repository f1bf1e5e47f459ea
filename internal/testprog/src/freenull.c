/* freenull: free(NULL) while very many allocations live: with every one of them sampled, every byte of the agent's
 * filter is set, that of address 0 too. */
#include "check.h"

enum { LIVE = 30000 };
static void *kept[LIVE];

int main(void) {
  for (int i = 0; i < LIVE; i++)
    CHECK((kept[i] = malloc(24 + (size_t)(i % 64))) != NULL);
  for (int i = 0; i < 100; i++) {
    void *volatile nothing = NULL;
    free(nothing);
    CHECK((nothing = realloc(nothing, 40)) != NULL);
    free(nothing);
  }
  for (int i = 0; i < LIVE; i++)
    free(kept[i]);
  puts("freenull ok");
  return 0;
}
