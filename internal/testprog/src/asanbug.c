/* asanbug: bugs that a sanitizer is to find: argv[1] is after-free, overflow, leak, undefined, race or none. */
#include "check.h"

static int global;

static void *racer(void *arg) {
  for (int i = 0; i < 1000; i++)
    global++;
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  volatile int n = 10;
  char *p = malloc(10);
  p[0] = 1;
  if (!strcmp(argv[1], "after-free")) {
    char *volatile gone = p; /* or the compiler finds it first */
    free(p);
    printf("read %d\n", gone[0]);
    return 1;
  }
  if (!strcmp(argv[1], "overflow"))
    p[n] = 1;
  if (!strcmp(argv[1], "undefined"))
    printf("sum %d\n", 0x7fffffff + n);
  if (!strcmp(argv[1], "race")) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_create(&t[i], NULL, racer, NULL), 0);
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_join(t[i], NULL), 0);
  }
  if (strcmp(argv[1], "leak"))
    free(p);
  p = NULL;
  puts("asanbug ok");
  return 0;
}
