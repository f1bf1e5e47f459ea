// truth: as truth.c, for C++20's waits on atomics. usage: truth SCENARIO ROUNDS FILE
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <unistd.h>
#include <vector>

static uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return uint64_t(t.tv_sec) * 1000000000u + uint64_t(t.tv_nsec);
}

struct Line {
  int tid, releaser;
  uint64_t start, end;
};

int main(int argc, char **argv) {
  if (argc != 4 || std::strcmp(argv[1], "atomic-wait")) return 2;
  int rounds = std::atoi(argv[2]);
  std::atomic<int> turn{0}, last{0};
  std::vector<Line> lines;
  std::thread waiter([&] {
    for (int i = 0; i < rounds; i++) {
      uint64_t t = now();
      turn.wait(i);
      lines.push_back({gettid(), last, t, now()});
    }
  });
  for (int i = 0; i < rounds; i++) {
    usleep(200 + unsigned(i) * 37 % 400);
    last = gettid();
    turn.store(i + 1);
    turn.notify_one();
  }
  waiter.join();
  FILE *f = std::fopen(argv[3], "w");
  if (!f) return 1;
  for (auto &l : lines)
    std::fprintf(f, "atomic-wait %d %llu %llu 0 %d\n", l.tid, (unsigned long long)l.start, (unsigned long long)l.end, l.releaser);
  return std::fclose(f) != 0;
}
