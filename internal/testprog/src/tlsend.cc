// Threads whose thread_local objects and keys free most of their memory, and take most of their time, when they end.
// Prints the CPU time of each thread as its last destructor sees it, in ns.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

static std::mutex out;

static long cpu() {
  timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static void burn(long ns) {
  static volatile unsigned long sink;
  for (long end = cpu() + ns; cpu() < end;)
    for (int i = 0; i < 10000; i++) sink = sink * 31 + (unsigned long)i;
}

static void fill(std::vector<void *> &blocks) {
  for (int i = 0; i < 100; i++) blocks.push_back(memset(malloc(1 << 20), i, 64));
}

static void drop(std::vector<void *> &blocks) {
  for (void *b : blocks) free(b);
  blocks.clear();
}

struct Cache {
  std::vector<void *> blocks;
  ~Cache() {
    burn(50000000);
    drop(blocks);
  }
};
static thread_local Cache cache;
static pthread_key_t key;

static void last(void *p) {
  auto *blocks = static_cast<std::vector<void *> *>(p);
  burn(50000000);
  drop(*blocks);
  delete blocks;
  std::lock_guard<std::mutex> g(out);
  printf("%ld\n", cpu());
}

static void *work(void *how) {
  fill(cache.blocks);
  auto *blocks = new std::vector<void *>;
  fill(*blocks);
  pthread_setspecific(key, blocks);
  if (how) pthread_exit(nullptr);
  return nullptr;
}

int main() {
  pthread_key_create(&key, last);
  for (int i = 0; i < 2; i++) {
    pthread_t t;
    if (pthread_create(&t, nullptr, work, i ? &key : nullptr)) return 1;
    pthread_join(t, nullptr);
  }
  return 0;
}
