/* Runs argv[1..] without LD_PRELOAD. Linked statically, so that no agent is in it that would hand itself on. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  if (argc < 2 || unsetenv("LD_PRELOAD")) return 125;
  execvp(argv[1], argv + 1);
  return 127;
}
