// mixed.cc: a C++ program without frame pointers whose time is in qsort and std::sort callbacks, exceptions,
// virtual calls, recursion, strings and formatted output.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static unsigned seed = 1;
static unsigned next() { return seed = seed * 1664525u + 1013904223u; }

static int ascending(const void *a, const void *b) {
  int x = *static_cast<const int *>(a), y = *static_cast<const int *>(b);
  return (x > y) - (x < y);
}

struct Shape {
  virtual ~Shape() = default;
  virtual double area(int depth) const = 0;
};
struct Square : Shape {
  double area(int depth) const override { return depth ? area(depth - 1) + 1 : 1; }
};
struct Nested : Shape {
  std::unique_ptr<Shape> inner = std::make_unique<Square>();
  double area(int depth) const override {
    volatile char pad[200];
    pad[0] = static_cast<char>(depth);
    return inner->area(depth) + pad[0];
  }
};

__attribute__((noinline)) static int thrower(int depth) {
  if (depth == 0) {
    if (next() % 2) throw std::runtime_error("two");
    throw 1;
  }
  std::string keep(static_cast<size_t>(depth % 40), 'x'); // needs a landing pad
  return thrower(depth - 1) + static_cast<int>(keep.size());
}

int main(int argc, char **argv) {
  long rounds = argc > 1 ? atol(argv[1]) : 100, sum = 0;
  for (long r = 0; r < rounds; r++) {
    std::vector<int> v(300);
    for (int &x : v) x = static_cast<int>(next());
    qsort(v.data(), v.size(), sizeof v[0], ascending);
    for (int &x : v) x = static_cast<int>(next());
    std::sort(v.begin(), v.end(), [](int a, int b) { return a % 1000 < b % 1000; });
    std::map<std::string, int> m;
    for (int i = 0; i < 40; i++) m[std::to_string(next() % 1000)] += i;
    char text[256];
    for (const auto &[key, value] : m) sum += snprintf(text, sizeof text, "%s %d %8.3f", key.c_str(), value, value / 3.0);
    Nested n;
    sum += static_cast<long>(n.area(20));
    for (int i = 0; i < 3; i++) {
      try {
        sum += thrower(12);
      } catch (const std::exception &) {
        sum++;
      } catch (int x) {
        sum += x;
      }
    }
  }
  printf("%ld\n", sum);
  return 0;
}
