/* execchain: replaces itself argv[1] times, from the main thread and from another one in turn. */
#include "check.h"
#include <stdio.h>

static char **args;

static void *again(void *arg) {
  (void)arg;
  execv("/proc/self/exe", args);
  _exit(98);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  int left = atoi(argv[1]);
  burn_ns(3000000);
  free(malloc(70000));
  if (left == 0) {
    puts("execchain ok");
    return 17;
  }
  printf("%d to go\n", left);
  fflush(stdout);
  char num[12];
  snprintf(num, sizeof num, "%d", left - 1);
  args = (char *[]){argv[0], num, NULL};
  if (left % 2) {
    pthread_t t;
    CHECK_RC(pthread_create(&t, NULL, again, NULL), 0);
    for (;;)
      pause();
  }
  again(NULL);
  return 1;
}
