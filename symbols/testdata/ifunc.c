/* ifunc.c: functions whose implementation is chosen as the program starts, exported and local, called through PLT stubs. */
#include <stdio.h>

__attribute__((noinline)) static int twice_plain(int x) { return x + x; }
__attribute__((noinline)) static int twice_wide(int x) { return x << 1; }
static int (*choose_twice(void))(int) { return __builtin_cpu_supports("avx2") ? twice_wide : twice_plain; }
int twice(int) __attribute__((ifunc("choose_twice")));

__attribute__((noinline)) static int thrice_plain(int x) { return x + x + x; }
static int (*choose_thrice(void))(int) { return thrice_plain; }
static int thrice(int) __attribute__((ifunc("choose_thrice")));

int main(int argc, char **argv) {
  (void)argv;
  printf("%d %p\n", twice(argc) + thrice(argc), (void *)twice_plain);
  return 0;
}
