// A planted problem: build_index allocates and frees small nodes, and does next to nothing else, for one second of CPU time.
#include <stdlib.h>
#include <time.h>

struct node {
  struct node *next;
  char text[40];
};

__attribute__((noinline)) static struct node *build_index(void) {
  struct node *list = NULL;
  for (int i = 0; i < 1000; i++) {
    struct node *n = malloc(sizeof *n + (size_t)(i * 37 % 600));
    if (!n) abort();
    n->next = list;
    list = n;
  }
  return list;
}

__attribute__((noinline)) static void drop_index(struct node *list) {
  while (list) {
    struct node *next = list->next;
    free(list);
    list = next;
  }
}

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(void) {
  while (cpu_seconds() < 1) drop_index(build_index());
  return 0;
}
