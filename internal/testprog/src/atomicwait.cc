// atomicwait: C++20 waits that go to the futex through syscall(): atomic::wait, counting_semaphore, latch,
// barrier, jthread.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

int main() {
  std::atomic<int> turn{0};
  std::thread a([&] {
    for (int i = 0; i < 2000; i += 2) {
      turn.wait(i + 1);
      int want = i;
      while (turn.load() != want)
        turn.wait(i + 1);
      turn = i + 1;
      turn.notify_all();
    }
  });
  for (int i = 1; i < 2000; i += 2) {
    int now;
    while ((now = turn.load()) != i)
      turn.wait(now);
    turn = i + 1;
    turn.notify_all();
  }
  a.join();
  std::counting_semaphore<10> s{0};
  using namespace std::chrono_literals;
  auto t0 = std::chrono::steady_clock::now();
  bool got = s.try_acquire_for(10ms);
  bool early = std::chrono::steady_clock::now() - t0 < 10ms;
  std::latch l{4};
  int phases = 0;
  std::barrier b{4, [&]() noexcept { phases++; }};
  std::vector<std::thread> ts;
  for (int i = 0; i < 4; i++)
    ts.emplace_back([&] {
      l.arrive_and_wait();
      for (int k = 0; k < 100; k++)
        b.arrive_and_wait();
    });
  for (auto &t : ts)
    t.join();
  std::this_thread::sleep_for(5ms);
  printf("turn %d, acquired %d, early %d, phases %d\n", turn.load(), got, early, phases);
  return turn.load() == 2000 && !got && !early && phases == 100 ? 0 : 99;
}
