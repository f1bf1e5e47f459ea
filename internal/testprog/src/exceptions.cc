// exceptions: C++ exceptions and cancellation through C frames and wrapped functions: qsort callbacks, call_once,
// locks, threads; destructors must run exactly once on every way out.
#include "check.h"
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int alive;
char *volatile escaped;
struct Guard {
  char *p = new char[1000];
  Guard() { __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED); }
  ~Guard() {
    delete[] p;
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
  }
};

static int throwing_compare(const void *a, const void *b) {
  static thread_local int calls;
  Guard g;
  if (++calls % 50 == 0)
    throw std::runtime_error("compare");
  return *static_cast<const int *>(a) - *static_cast<const int *>(b);
}

__attribute__((noinline)) static void deep(int n) {
  Guard g;
  std::string s(100 + n, 'x');
  if (n == 0)
    throw std::logic_error(s);
  deep(n - 1);
  asm volatile("");
}

static void *cancelled(void *arg) {
  auto *where = static_cast<int *>(arg);
  Guard g;
  std::mutex m;
  std::condition_variable cv;
  std::unique_lock<std::mutex> l(m);
  char c;
  switch (*where) {
  case 0:
    for (;;)
      poll(nullptr, 0, -1);
  case 1: {
    int fd[2];
    if (pipe(fd) == 0)
      for (;;)
        if (read(fd[0], &c, 1) < 0)
          break;
    break;
  }
  case 2:
    for (;;)
      cv.wait(l);
  case 3:
    for (;;)
      sleep(100);
  }
  return nullptr;
}

static void *exits(void *) {
  Guard g;
  struct Deeper {
    static void go(int n) {
      Guard g;
      if (n == 0)
        pthread_exit(nullptr);
      go(n - 1);
      asm volatile("");
    }
  };
  Deeper::go(20);
  return nullptr;
}

int main() {
  int caught = 0;
  for (int i = 0; i < 300; i++) {
    std::vector<int> v(64);
    for (int j = 0; j < 64; j++)
      v[j] = (j * 7919 + i) % 101;
    try {
      qsort(v.data(), v.size(), sizeof(int), throwing_compare);
    } catch (const std::runtime_error &e) {
      caught += !strcmp(e.what(), "compare");
    }
  }
  CHECK(caught == 300 && alive == 0);

  std::once_flag once;
  int tries = 0;
  for (int i = 0; i < 5; i++)
    try {
      std::call_once(once, [&] {
        Guard g;
        if (++tries < 4)
          throw tries;
      });
    } catch (int n) {
      CHECK(n == tries);
    }
  CHECK(tries == 4 && alive == 0);

  std::mutex m;
  for (int i = 0; i < 500; i++)
    try {
      std::lock_guard<std::mutex> l(m);
      deep(i % 40);
    } catch (const std::logic_error &) {
      CHECK(m.try_lock());
      m.unlock();
      caught++;
    }
  CHECK(caught == 800 && alive == 0);

  std::exception_ptr carried;
  std::vector<std::thread> ts;
  for (int i = 0; i < 4; i++)
    ts.emplace_back([&, i] {
      for (int k = 0; k < 200; k++)
        try {
          deep(k % 30);
        } catch (const std::exception &) {
          if (i == 0 && k == 199)
            carried = std::current_exception();
        }
    });
  for (auto &t : ts)
    t.join();
  CHECK(alive == 0 && carried);
  try {
    std::rethrow_exception(carried);
  } catch (const std::logic_error &e) {
    CHECK(strlen(e.what()) == 100);
  }

  try {
    volatile size_t much = static_cast<size_t>(-1) / 4;
    escaped = new char[much]; // through a global: the compiler may drop an allocation that it can see the end of
    CHECK(!"allocated");
  } catch (const std::bad_alloc &) {
    caught++;
  }
  CHECK(caught == 801);

  for (int where = 0; where < 4; where++)
    for (int wait_us = 0; wait_us <= 5000; wait_us += 5000) {
      pthread_t t;
      CHECK_RC(pthread_create(&t, nullptr, cancelled, &where), 0);
      usleep(wait_us);
      CHECK_RC(pthread_cancel(t), 0);
      void *ret;
      CHECK_RC(pthread_join(t, &ret), 0);
      CHECK(ret == PTHREAD_CANCELED && alive == 0);
    }
  for (int i = 0; i < 20; i++) {
    pthread_t t;
    CHECK_RC(pthread_create(&t, nullptr, exits, nullptr), 0);
    CHECK_RC(pthread_join(t, nullptr), 0);
    CHECK(alive == 0);
  }
  puts("exceptions ok");
  return 0;
}
