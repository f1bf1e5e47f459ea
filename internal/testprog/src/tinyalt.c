/* tinyalt: alternate signal stacks as small as the kernel takes them, which handlers that need next to nothing can do
 * with. Nothing is written below them, and their owner computes. altdepth's is large, and tells how much of it was
 * used. */
#include "check.h"
#include <signal.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

enum { GUARD = 8192, PAINT = 0x5a };

static void paint(unsigned char *p, size_t n) { memset(p, PAINT, n); }
static size_t clean(const unsigned char *p, size_t n) {
  size_t i = 0;
  while (i < n && p[i] == PAINT)
    i++;
  return i;
}

static void *thread(void *arg) {
  static const size_t sizes[] = {2048, 2560, 3072, 3584, 4096, 4608};
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    unsigned char *room = malloc(GUARD + sizes[i] + GUARD);
    paint(room, GUARD + sizes[i] + GUARD);
    stack_t st = {.ss_sp = room + GUARD, .ss_size = sizes[i]}, off = {.ss_flags = SS_DISABLE}, now;
    if (arg)
      CHECK(syscall(SYS_sigaltstack, &st, NULL) == 0);
    else
      CHECK(sigaltstack(&st, NULL) == 0);
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == st.ss_sp && now.ss_size == sizes[i]);
    burn_ns(25000000);
    CHECK(sigaltstack(&off, NULL) == 0);
    CHECK(clean(room, GUARD) == GUARD);
    CHECK(clean(room + GUARD + sizes[i], GUARD) == GUARD);
    free(room);
    burn_ns(5000000);
  }
  return NULL;
}

__attribute__((noinline)) static uint64_t deep(int n) {
  volatile uint64_t x = (uint64_t)n;
  return n ? deep(n - 1) + x : burn_ns(2000000);
}

int main(int argc, char **argv) {
  pthread_t t[2];
  (void)argv;
  if (argc == 1) {
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_create(&t[i], NULL, thread, i ? t : NULL), 0);
    for (int i = 0; i < 2; i++)
      CHECK_RC(pthread_join(t[i], NULL), 0);
    puts("tinyalt ok");
    return 0;
  }
  /* HB_HANDLER_BYTES of agent/state.h, of which an eighth is to be left */
  size_t bytes = 256 << 10, most = getauxval(AT_MINSIGSTKSZ) + 2048 - 256;
  unsigned char *room = malloc(bytes);
  paint(room, bytes);
  stack_t st = {.ss_sp = room, .ss_size = bytes};
  CHECK(sigaltstack(&st, NULL) == 0);
  for (int i = 0; i < 200; i++) {
    deep(i % 100 < 90 ? i % 100 : i * 20);
    free(malloc(100000));
  }
  size_t used = bytes - clean(room, bytes);
  if (getenv("SAY"))
    fprintf(stderr, "used %zu of %zu, frame %lu\n", used, most, getauxval(AT_MINSIGSTKSZ));
  CHECK(used <= most);
  puts("altdepth ok");
  return 0;
}
