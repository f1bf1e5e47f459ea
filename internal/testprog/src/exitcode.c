/* exitcode: ends with the status in argv[1], by the way in argv[2] (return, exit, _exit, quick, thread). */
#include "check.h"

static int status;

static void *leave(void *arg) {
  (void)arg;
  exit(status);
}

int main(int argc, char **argv) {
  CHECK(argc == 3);
  status = atoi(argv[1]);
  printf("leaving with %d by %s\n", status, argv[2]);
  fflush(stdout);
  if (!strcmp(argv[2], "exit"))
    exit(status);
  if (!strcmp(argv[2], "_exit"))
    _exit(status);
  if (!strcmp(argv[2], "quick"))
    quick_exit(status);
  if (!strcmp(argv[2], "thread")) {
    pthread_t t;
    CHECK_RC(pthread_create(&t, NULL, leave, NULL), 0);
    for (;;)
      pause();
  }
  return status;
}
