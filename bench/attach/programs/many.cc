// many: 200 threads that allocate, lock, sleep, throw, and load libraries. SIGTERM ends it: it prints right, or what was wrong, and how many calls
// ended early.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

static volatile sig_atomic_t stop;
static std::atomic<long> wrong, early, loads, rounds;
static std::mutex lock;
static std::map<int, std::string> shared;
static void on_term(int sig) { stop = sig; }

static void work(int id) {
  for (long n = 0; !stop; n++) {
    std::vector<std::string> v;
    for (int i = 0; i < 20; i++) v.push_back(std::string(10 + (id + i) % 90, char('a' + i)));
    {
      std::lock_guard<std::mutex> g(lock);
      shared[id] = v[n % 20];
      if (shared[id] != v[n % 20]) wrong++;
    }
    try {
      if (n % 10 == 3) throw std::runtime_error(v[3]);
    } catch (const std::exception &e) {
      if (v[3] != e.what()) wrong++;
    }
    if (id % 20 == 0 && n % 5 == 0) {
      void *l = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
      if (!l || !dlsym(l, "cos")) wrong++;
      if (l) dlclose(l);
      loads++;
    }
    rounds++;
    if (usleep(20000) && errno == EINTR && !stop) early++;
  }
}

int main() {
  std::signal(SIGTERM, on_term);
  sigset_t s;
  sigemptyset(&s);
  sigaddset(&s, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &s, nullptr);
  std::vector<std::thread> all;
  for (int i = 0; i < 199; i++) all.emplace_back(work, i);
  pthread_sigmask(SIG_UNBLOCK, &s, nullptr);
  while (!stop) usleep(10000);
  for (auto &t : all) t.join();
  std::printf("%ld wrong, %ld EINTR\n", wrong.load(), early.load());
  return wrong || early || !rounds;
}
