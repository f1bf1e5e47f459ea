/* malloc: the corners of the allocator's interface answer as without hooks. */
#include "check.h"
#include <malloc.h>
#include <sys/mman.h>

/* hidden from the optimiser, which knows these functions too well */
static void *(*volatile v_malloc)(size_t) = malloc;
static void *(*volatile v_calloc)(size_t, size_t) = calloc;
static void *(*volatile v_realloc)(void *, size_t) = realloc;
static void (*volatile v_free)(void *) = free;
static volatile size_t huge = (size_t)-1 / 2 + 5;

int main(void) {
  free(NULL);
  v_free(NULL);
  errno = 0;
  CHECK(v_malloc(huge) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(v_calloc(huge, 2) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(v_calloc((size_t)1 << 33, (size_t)1 << 33) == NULL && errno == ENOMEM);
  errno = 0;
  void *(*volatile v_reallocarray)(void *, size_t, size_t) = reallocarray;
  char *keep = v_malloc(10);
  strcpy(keep, "kept");
  CHECK(v_reallocarray(keep, (size_t)1 << 33, (size_t)1 << 33) == NULL && errno == ENOMEM);
  CHECK(!strcmp(keep, "kept"));
  CHECK(v_realloc(keep, huge) == NULL && !strcmp(keep, "kept"));
  keep = v_reallocarray(keep, 100, 30);
  CHECK(keep && !strcmp(keep, "kept"));
  v_free(keep);

  char *p = v_realloc(NULL, 100);
  CHECK(p && malloc_usable_size(p) >= 100);
  memset(p, 'a', 100);
  p = v_realloc(p, 100000);
  CHECK(p && p[99] == 'a');
  p = v_realloc(p, 5);
  CHECK(p && p[4] == 'a');
  printf("realloc(p, 0) %s\n", v_realloc(p, 0) ? "kept it" : "freed it");
  p = v_malloc(0);
  printf("malloc(0) %s\n", p ? "is not null" : "is null");
  v_free(p);
  CHECK(malloc_usable_size(NULL) == 0);

  char *z = v_calloc(1000, 37);
  CHECK(z);
  for (int i = 0; i < 37000; i++)
    CHECK(z[i] == 0);
  v_free(z);
  /* memory that was used before comes back zeroed from calloc */
  for (int i = 0; i < 200; i++) {
    char *d = v_malloc(500);
    memset(d, 0xff, 500);
    v_free(d);
    d = v_calloc(5, 100);
    for (int j = 0; j < 500; j++)
      CHECK(d[j] == 0);
    v_free(d);
  }

  void *a = (void *)1;
  CHECK_RC(posix_memalign(&a, 3, 100), EINVAL);
  CHECK_RC(posix_memalign(&a, 2, 100), EINVAL);
  CHECK_RC(posix_memalign(&a, 64, huge), ENOMEM);
  CHECK(a == (void *)1);
  for (size_t al = sizeof(void *); al <= 65536; al *= 2) {
    CHECK_RC(posix_memalign(&a, al, 333), 0);
    CHECK(a && (uintptr_t)a % al == 0);
    memset(a, 1, 333);
    a = v_realloc(a, 3330);
    CHECK(a && ((char *)a)[332] == 1);
    v_free(a);
    a = aligned_alloc(al, al * 2);
    CHECK(a && (uintptr_t)a % al == 0);
    v_free(a);
    a = memalign(al, 77);
    CHECK(a && (uintptr_t)a % al == 0);
    v_free(a);
  }
  long page = sysconf(_SC_PAGESIZE);
  a = valloc(10);
  CHECK(a && (uintptr_t)a % (uintptr_t)page == 0);
  v_free(a);
  a = pvalloc(10);
  CHECK(a && (uintptr_t)a % (uintptr_t)page == 0 && malloc_usable_size(a) >= (size_t)page);
  v_free(a);

  /* what allocates behind the scenes */
  char *s = strdup("a string"), *n = strndup("another", 3), *f;
  CHECK(asprintf(&f, "%s %s %d", s, n, 42) == 15 && !strcmp(f, "a string ano 42"));
  free(s);
  free(n);
  free(f);
  char *line = NULL;
  size_t cap = 0;
  FILE *mem = fmemopen("one\ntwo\n", 8, "r");
  CHECK(mem && getline(&line, &cap, mem) == 4 && !strcmp(line, "one\n"));
  free(line);
  fclose(mem);
  char *cwd = getcwd(NULL, 0);
  CHECK(cwd);
  free(cwd);

  /* many live at once, of all sizes, each with a pattern */
  enum { N = 3000 };
  static unsigned char *live[N];
  static size_t len[N];
  uint32_t x = 12345;
  for (int i = 0; i < 200000; i++) {
    x = x * 1664525 + 1013904223;
    int k = (int)((x >> 8) % N);
    if (live[k]) {
      CHECK(live[k][0] == (unsigned char)k && live[k][len[k] - 1] == (unsigned char)(k + 1));
      free(live[k]);
      live[k] = NULL;
    } else {
      len[k] = 2 + (x >> 20) % 1500;
      live[k] = malloc(len[k]);
      live[k][0] = (unsigned char)k;
      live[k][len[k] - 1] = (unsigned char)(k + 1);
    }
  }
  for (int k = 0; k < N; k++)
    free(live[k]);
  struct mallinfo2 mi = mallinfo2();
  CHECK(mi.uordblks < 4u << 20);
  puts("malloc ok");
  return 0;
}
