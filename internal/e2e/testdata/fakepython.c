//go:build ignore

/* fakepython.c: looks like CPython 3.11 from outside, and keeps anything but frames where those should be: random words that lead
 * anywhere, loops, code objects that are unmapped or used again, names of 1 MB, surrogates, more functions than there are ids. It
 * sleeps again and again, so that its stacks are taken, and says when it reached the end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t _PyRuntime[1024];
uint64_t PyCode_Type[64];
const uint32_t Py_Version = 0x030b02f0;

enum { TS_CFRAME = 56 / 8, CF_FRAME = 8 / 8, CF_PREVIOUS = 16 / 8, F_CODE = 32 / 8, F_PREVIOUS = 48 / 8, F_INSTR = 56 / 8, F_FLAGS = 64 / 8,
       CO_TYPE = 8 / 8, CO_FIRST = 72 / 8, CO_FILE = 112 / 8, CO_NAME = 120 / 8, CO_QUALNAME = 128 / 8, CO_TABLE = 136 / 8,
       CO_WORDS = 32, F_WORDS = 10 };
#define ENTRY (1ull << 32) /* is_entry is byte 68, owner byte 69: of the word at 64 */

static uint64_t state = 88172645463325252ull;
static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

static uint64_t ts[64], cframe[4];

/* The stack is taken here. */
static void taken(void) {
  struct timespec ns = {0, 1};
  nanosleep(&ns, NULL);
}

static uint64_t *string(uint64_t length, int kind, int ascii, const void *text, uint64_t bytes) {
  char *s = calloc(1, 72 + bytes + 8);
  ((uint64_t *)s)[2] = length;
  *(uint32_t *)(s + 32) = (uint32_t)kind << 2 | 1 << 5 | (uint32_t)ascii << 6;
  memcpy(s + (ascii ? 48 : 72), text, bytes);
  return (uint64_t *)s;
}

static uint64_t *bytes(uint64_t n) {
  uint64_t *b = calloc(1, 40 + n);
  b[2] = n;
  for (uint64_t i = 0; i < n; i++) ((unsigned char *)b)[32 + i] = (unsigned char)next();
  return b;
}

static void make_code(uint64_t *c, uint64_t *name, uint64_t *file, uint64_t *table, uint32_t first) {
  c[CO_TYPE] = (uint64_t)PyCode_Type;
  c[CO_FIRST] = first;
  c[CO_NAME] = c[CO_QUALNAME] = (uint64_t)name;
  c[CO_FILE] = (uint64_t)file;
  c[CO_TABLE] = (uint64_t)table;
}

static uint64_t frames[256 * F_WORDS];

/* n frames that are right, of the code objects at c, `stride` words apart. */
static void chain(uint64_t *c, int n, int stride) {
  for (int i = 0; i < n; i++) {
    uint64_t *f = frames + i * F_WORDS;
    f[F_CODE] = (uint64_t)(c + i * stride);
    f[F_PREVIOUS] = i + 1 < n ? (uint64_t)(f + F_WORDS) : 0;
    f[F_INSTR] = f[F_CODE] + 184 + 2 * (next() % 100);
    f[F_FLAGS] = i + 1 == n ? ENTRY : 0;
  }
  cframe[CF_FRAME] = (uint64_t)frames;
  cframe[CF_PREVIOUS] = 0;
  ts[TS_CFRAME] = (uint64_t)cframe;
}

int main(void) {
  pthread_key_t key;
  pthread_key_create(&key, NULL);
  _PyRuntime[592 / 8] = 1 | (uint64_t)key << 32;
  pthread_setspecific(key, ts);
  const long page = 4096, words = 64 << 10;
  sleep(1); /* until the tables for stacks are there */

  /* 1: what makes sense */
  uint64_t *file = string(11, 1, 1, "fake/file.p", 11), *name = string(10, 1, 1, "a_function", 10);
  uint64_t *code = calloc(CO_WORDS * 8, 300);
  for (int i = 0; i < 200; i++) make_code(code + i * CO_WORDS, name, file, bytes(60), (uint32_t)i + 1);
  for (int n = 1; n < 200; n += 20) chain(code, n, CO_WORDS), taken();

  /* 2: strings */
  static char big[1 << 20];
  memset(big, 'x', sizeof big);
  const uint16_t lone[] = {0xd800, 'a', 0xdfff, 0x0a, 0x1b};
  const uint32_t beyond[] = {0x110000, 0xffffffff, 'b', 0xd900};
  uint64_t *names[] = {string(sizeof big, 1, 1, big, sizeof big), string(5, 2, 0, lone, sizeof lone), string(4, 4, 0, beyond, sizeof beyond),
                       string(0, 1, 1, "", 0), string(3, 1, 0, "\xff\xfe\x80", 3), string(1ull << 39, 1, 1, "long", 4),
                       string(UINT64_MAX, 4, 0, "long", 4), string(4, 7, 0, "kind", 4), NULL, (uint64_t *)1, (uint64_t *)(16ull << 40)};
  enum { NAMES = sizeof names / sizeof *names };
  uint64_t *tables[] = {bytes(0), bytes(100 << 10), bytes(5000), NULL, (uint64_t *)8};
  for (int i = 0; i < NAMES * NAMES; i++) {
    uint64_t *c = calloc(CO_WORDS, 8);
    make_code(c, names[i % NAMES], names[i / NAMES], tables[i % 5], (uint32_t)next());
    chain(c, 1, 0);
    taken();
  }

  /* 3: words that lead anywhere */
  uint64_t *area = mmap(NULL, (size_t)words * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *hole = mmap(NULL, (size_t)(3 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(hole + page, (size_t)page, PROT_NONE);
  for (int round = 0; round < 1500; round++) {
    for (int i = 0; i < 2000; i++) {
      uint64_t w, r = next();
      switch (r >> 8 & 7) {
      case 0: w = r; break;
      case 1: w = (uint64_t)hole + r % (uint64_t)(3 * page); break;
      case 2: w = (uint64_t)(code + (r >> 20) % 200 * CO_WORDS); break;
      case 3: w = (uint64_t)hole + (uint64_t)page - 8; break;
      case 4: w = 0; break;
      case 5: w = (uint64_t)PyCode_Type; break;
      default: w = (uint64_t)(area + (r >> 20) % (uint64_t)words); break;
      }
      area[next() % (uint64_t)words] = w;
    }
    ts[TS_CFRAME] = round & 1 ? (uint64_t)(area + next() % (uint64_t)words) : (uint64_t)cframe;
    cframe[CF_FRAME] = (uint64_t)(area + next() % (uint64_t)words);
    cframe[CF_PREVIOUS] = next();
    if (round % 16 == 15) pthread_setspecific(key, (void *)(area + next() % (uint64_t)words));
    else if (round % 64 == 8) pthread_setspecific(key, (void *)next());
    else pthread_setspecific(key, ts);
    taken();
  }
  pthread_setspecific(key, ts);

  /* 4: a loop */
  chain(code, 5, CO_WORDS);
  frames[4 * F_WORDS + F_PREVIOUS] = (uint64_t)frames;
  frames[4 * F_WORDS + F_FLAGS] = 0;
  for (int i = 0; i < 5; i++) taken();

  /* 5: code that goes away under its frame, and others' that comes in its place */
  for (int round = 0; round < 100; round++) {
    uint64_t *c = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    make_code(c, name, file, bytes(20), (uint32_t)round + 1000);
    chain(c, 1, 0);
    taken();
    munmap(c, (size_t)page);
    taken();
    mmap(c, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    make_code(c, string(5, 1, 1, "other", 5), file, bytes(20), (uint32_t)round + 5000);
    taken();
    munmap(c, (size_t)page);
  }

  /* 6: more functions than have ids */
  uint64_t *many = calloc(CO_WORDS * 8, 199), *table = bytes(2);
  for (int round = 0; round < 360; round++) {
    for (int i = 0; i < 199; i++) make_code(many + i * CO_WORDS, name, file, table, (uint32_t)(round * 199 + i));
    chain(many, 199, CO_WORDS);
    taken();
  }
  chain(code, 3, CO_WORDS);
  taken();
  puts("all of it");
  return 0;
}
