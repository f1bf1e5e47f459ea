/* allocates: one thread that allocates and frees 1,000 bytes argv[1] times. */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  long n = argc > 1 ? atol(argv[1]) : 1000;
  volatile unsigned sum = 0;
  for (long i = 0; i < n; i++) {
    char *p = malloc(1000);
    p[i % 1000] = (char)i;
    sum += (unsigned)p[i % 1000];
    free(p);
  }
  printf("%u\n", sum);
  return 0;
}
