/* leaves.c: where an interrupted instruction may stand with no frame, half a frame, or another's: tail calls, calls through a PLT stub
 * (its first use, which binds it, is over before anybody looks), calls without one (-fno-plt), functions written by hand, the vDSO. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))

/* pushes and pops by hand, a frame pointer that is none, and a jump to the middle */
__asm__(".text\n.globl by_hand\n.type by_hand,@function\nby_hand:\n.cfi_startproc\n"
        "\tpush %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbx,-16\n"
        "\tpush %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_offset rbp,-24\n"
        "\tmov %rdi,%rbp\n\txor %eax,%eax\n\tsub $40,%rsp\n.cfi_adjust_cfa_offset 40\n"
        "1:\tlea (%rax,%rbp,2),%rbx\n\tmov %rbx,8(%rsp)\n\tadd 8(%rsp),%rax\n\tdec %rbp\n\tjnz 1b\n"
        "\tadd $40,%rsp\n.cfi_adjust_cfa_offset -40\n\tpop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbp\n"
        "\tpop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbx\n\tret\n.cfi_endproc\n.size by_hand,.-by_hand\n"
        /* jumps on to it with everything still where the caller put it */
        ".globl hands_on\n.type hands_on,@function\nhands_on:\n.cfi_startproc\n\tlea 3(%rdi),%rdi\n\tjmp by_hand\n.cfi_endproc\n"
        ".size hands_on,.-hands_on\n");
extern long by_hand(long), hands_on(long);

static volatile long sink;

NOINLINE long last(long x) { return x * 3 + sink; }
NOINLINE long middle(long x) { return last(x + 1); }  /* a jump, at -O2 */
NOINLINE long first(long x) { return middle(x ^ 5); } /* and another */
NOINLINE long saves(long x) {
  long a = first(x), b = first(a), c = last(b);
  if (x & 1) return middle(a + b + c); /* behind an epilogue */
  return a - b - c;
}

static int compare(const void *a, const void *b) { return (int)(first(*(const int *)a) - first(*(const int *)b)); }

int main(int argc, char **argv) {
  long rounds = argc > 1 ? atol(argv[1]) : 1;
  struct timespec t;
  char text[64];
  for (long i = 0; i < rounds; i++) {
    int v[4] = {4, 2, 3, 1};
    sink += saves(i) + by_hand(3 + i % 5) + hands_on(2);
    clock_gettime(CLOCK_MONOTONIC, &t);
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    sink += (long)strlen(text) + (long)cbrt((double)(i + t.tv_nsec));
    qsort(v, 4, sizeof *v, compare);
  }
  return 0;
}
