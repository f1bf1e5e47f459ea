/* ownmalloc: a program with an allocator of its own, as games and databases have: malloc and its family are defined in
 * the executable, so that libc and every library use them. What they hand out must come from here, whoever asks. */
#include "check.h"
#include <sys/mman.h>

enum { ARENA = 64 << 20 };
static char *arena;
static _Atomic size_t used, calls;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct head {
  size_t bytes, magic;
};
enum { MAGIC = 0x6f776e };

static void setup(void) {
  arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED)
    _exit(97);
}

static void *take(size_t align, size_t bytes) {
  pthread_once(&once, setup);
  calls++;
  size_t want = bytes + align + sizeof(struct head);
  size_t at = __atomic_fetch_add((size_t *)&used, (want + 15) & ~15ul, __ATOMIC_RELAXED);
  if (at + want > ARENA) {
    errno = ENOMEM;
    return NULL;
  }
  uintptr_t p = ((uintptr_t)arena + at + sizeof(struct head) + align - 1) & ~(uintptr_t)(align - 1);
  struct head *h = (struct head *)p - 1;
  h->bytes = bytes;
  h->magic = MAGIC;
  return (void *)p;
}

static struct head *head_of(void *p) {
  struct head *h = (struct head *)p - 1;
  if ((char *)p < arena || (char *)p > arena + ARENA || h->magic != MAGIC)
    _exit(96); /* not ours: somebody else's allocator was asked */
  return h;
}

void *malloc(size_t n) { return take(16, n); }
void free(void *p) {
  if (p)
    head_of(p)->bytes = 0;
}
void *calloc(size_t n, size_t each) {
  size_t bytes;
  if (__builtin_mul_overflow(n, each, &bytes)) {
    errno = ENOMEM;
    return NULL;
  }
  return take(16, bytes); /* fresh pages are zero, and none is used twice */
}
void *realloc(void *p, size_t n) {
  void *q = take(16, n);
  if (p && q) {
    size_t old = head_of(p)->bytes;
    memcpy(q, p, old < n ? old : n);
  }
  return q;
}
int posix_memalign(void **p, size_t align, size_t n) {
  *p = take(align < 16 ? 16 : align, n);
  return *p ? 0 : ENOMEM;
}
void *aligned_alloc(size_t align, size_t n) { return take(align < 16 ? 16 : align, n); }
void *memalign(size_t align, size_t n) { return aligned_alloc(align, n); }
size_t malloc_usable_size(void *p) { return p ? head_of(p)->bytes : 0; }

static void *body(void *arg) {
  for (int i = 0; i < 500; i++) {
    char *p = malloc(100 + (size_t)i);
    memset(p, i, 100 + (size_t)i);
    p = realloc(p, 300 + (size_t)i);
    CHECK(p[99] == (char)i);
    char *s = strdup("from libc");
    CHECK(head_of(s)->bytes == 10);
    free(s);
    free(p);
    if (i % 50 == 0)
      burn_ns(500000);
  }
  return arg;
}

int main(void) {
  pthread_t t[3];
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_create(&t[i], NULL, body, NULL), 0);
  for (int i = 0; i < 3; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  void *p;
  CHECK_RC(posix_memalign(&p, 4096, 100), 0);
  CHECK(((uintptr_t)p & 4095) == 0);
  head_of(p);
  FILE *f = fopen("/dev/null", "w");
  CHECK(f);
  head_of(f); /* libc's own */
  fclose(f);
  CHECK(calls > 4500);
  puts("ownmalloc ok");
  return 0;
}
