// cxx: a C++ program with a known hot function (sort_chunk), a contended std::mutex and a condition variable.
// argv[1] scales the work; prints a checksum.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

namespace work {
struct Job {
  uint64_t seed;
  std::string name;
};

class Queue {
public:
  void push(Job j) {
    {
      std::lock_guard<std::mutex> l(m_);
      q_.push(std::move(j));
    }
    cv_.notify_one();
  }
  bool pop(Job &out) {
    std::unique_lock<std::mutex> l(m_);
    cv_.wait(l, [&] { return closed_ || !q_.empty(); });
    if (q_.empty())
      return false;
    out = std::move(q_.front());
    q_.pop();
    return true;
  }
  void close() {
    std::lock_guard<std::mutex> l(m_);
    closed_ = true;
    cv_.notify_all();
  }

private:
  std::mutex m_;
  std::condition_variable cv_;
  std::queue<Job> q_;
  bool closed_ = false;
};

__attribute__((noinline)) uint64_t sort_chunk(std::vector<uint64_t> &v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

__attribute__((noinline)) void fill_chunk(std::vector<uint64_t> &v, uint64_t seed) {
  for (auto &x : v) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    x = seed;
  }
}
} // namespace work

int main(int argc, char **argv) {
  const int jobs = argc > 1 ? atoi(argv[1]) : 60;
  work::Queue q;
  std::shared_mutex table_lock;
  std::map<std::string, std::unique_ptr<uint64_t>> table;
  std::vector<std::thread> workers;
  for (int w = 0; w < 4; w++)
    workers.emplace_back([&] {
      std::vector<uint64_t> v(60000);
      work::Job j;
      while (q.pop(j)) {
        work::fill_chunk(v, j.seed);
        uint64_t median = work::sort_chunk(v);
        std::unique_lock<std::shared_mutex> l(table_lock);
        table[j.name] = std::make_unique<uint64_t>(median);
      }
    });
  for (int i = 0; i < jobs; i++)
    q.push({uint64_t(i) * 2654435761u + 1, "a job with quite a long name, number " + std::to_string(i)});
  q.close();
  for (auto &w : workers)
    w.join();
  uint64_t sum = 0;
  for (auto &kv : table)
    sum = sum * 31 + *kv.second;
  printf("%zu jobs, checksum %016llx\n", table.size(), static_cast<unsigned long long>(sum));
  return 0;
}
