/* Uses CPU time: milliseconds as the first argument. Started with "until" and a file it does so until the file is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static long cpu_ms(void) {
  struct timespec ts;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
  return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
  volatile unsigned long x = 0;
  if (argc > 2 && !strcmp(argv[1], "until")) {
    while (access(argv[2], F_OK))
      for (int i = 0; i < 100000; i++) x = x * 31 + 1;
    return 0;
  }
  for (long ms = argc > 1 ? atol(argv[1]) : 100; cpu_ms() < ms;)
    for (int i = 0; i < 100000; i++) x = x * 31 + 1;
  puts("spun");
  return 0;
}
