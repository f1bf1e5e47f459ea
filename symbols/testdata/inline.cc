// Inlining, templates, namespaces, lambdas, constructors and virtual calls, for comparison with addr2line.
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace shapes {
template <typename T> struct Box {
    T w, h;
    Box(T a, T b);
    inline T area() const { return w * h; }
    __attribute__((noinline)) T grow(T by) {
        w += by;
        h += by;
        return area();
    }
};
template <typename T> __attribute__((noinline)) Box<T>::Box(T a, T b) : w(a), h(b) { printf("box\n"); }

namespace {
__attribute__((noinline)) int hidden(int x) {
    auto twice = [](int y) __attribute__((noinline)) {
        printf("lambda %d\n", y);
        return y * 2 + 1;
    };
    return twice(x) + twice(x + 1);
}
} // namespace

static inline int innermost(int x) {
    if (x > 1000)
        puts("big");
    return x * 3;
}
static inline int middle(int x) {
    int s = 0;
    for (int i = 0; i < x; i++)
        s += innermost(i ^ s);
    return s;
}
__attribute__((noinline)) int outermost(int x) {
    return middle(x) + middle(x * 2);
}
} // namespace shapes

struct Base {
    virtual ~Base() {}
    virtual int run(int) = 0;
};
struct Derived : Base {
    std::map<std::string, std::vector<int>> m;
    int run(int n) override {
        for (int i = 0; i < n; i++)
            m[std::to_string(i % 7)].push_back(i);
        int s = 0;
        for (auto &kv : m) {
            std::sort(kv.second.begin(), kv.second.end(), [](int a, int b) { return a > b; });
            s += kv.second.front();
        }
        return s;
    }
};

extern "C" __attribute__((noinline)) int plain_c(int x) {
    if (x < 0)
        abort();
    return x + 1;
}

int main(int argc, char **) {
    shapes::Box<int> b(argc, 2);
    shapes::Box<double> d(argc, 2.5);
    Derived r;
    Base *p = &r;
    return b.grow(3) + int(d.grow(1)) + shapes::outermost(argc) + shapes::hidden(argc) + p->run(argc * 10) + plain_c(argc) > 99;
}
