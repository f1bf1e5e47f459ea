// Static functions, cold parts, a function without debug information and calls through the PLT.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline __attribute__((always_inline)) int leaf(int x) {
    char b[32];
    snprintf(b, sizeof b, "%d", x);
    return (int)strlen(b);
}

static __attribute__((noinline)) int branch(int x) {
    if (__builtin_expect(x < 0, 0)) {
        fprintf(stderr, "negative %d\n", x);
        abort();
    }
    return leaf(x) + leaf(x + 1);
}

__attribute__((noinline)) int visible(int x) { return branch(x) * 2; }

int main(int argc, char **argv) {
    (void)argv;
    return visible(argc) & 1;
}
