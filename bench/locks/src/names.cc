// names: as names.c, for a member of a class.
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace store {
class Cache {
 public:
  __attribute__((noinline)) void get() {
    std::lock_guard<std::mutex> hold(lock_);
    hits_++;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  __attribute__((noinline)) void put() {
    std::lock_guard<std::mutex> hold(lock_);
    stored_++;
    std::this_thread::sleep_for(std::chrono::microseconds(300));
  }

 private:
  std::mutex lock_;
  long hits_ = 0, stored_ = 0;
};
}  // namespace store

int main() {
  auto cache = std::make_unique<store::Cache>();
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; k++)
    threads.emplace_back([&, k] {
      for (int i = 0; i < 60; i++) {
        (i + k) % 16 != 15 ? cache->get() : cache->put();
        std::this_thread::sleep_for(std::chrono::microseconds(100));  // as names.c
      }
    });
  for (auto &t : threads) t.join();
}
