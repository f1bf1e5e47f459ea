/* hello: prints its arguments and one line to each of stdout and stderr. */
#include <stdio.h>

int main(int argc, char **argv) {
  printf("hello, %d arguments\n", argc - 1);
  for (int i = 1; i < argc; i++)
    printf("[%s]\n", argv[i]);
  fprintf(stderr, "hello on stderr\n");
  return 0;
}
