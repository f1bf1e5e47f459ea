package main

// This file owns the program that is symbolised: many C++ units whose templates are instantiated with types of the
// unit's own, so that the linker can fold nothing and every unit has code and DWARF of its own.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is one kind of unit. @N@ makes kinds differ, @U@ is replaced in names of the object file per copy.
const source = `#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>
namespace {
template <int I> struct Key {
    int a = I; std::string b;
    bool operator<(const Key &o) const { return a < o.a || (a == o.a && b < o.b); }
    bool operator==(const Key &o) const { return a == o.a && b == o.b; }
};
template <int I> struct Hash { size_t operator()(const Key<I> &k) const { return std::hash<std::string>()(k.b) + k.a + I; } };
template <int I> inline int mix(int x) { return x * (I | 1) + 7; }
template <int I> inline int deep(int x) { int s = mix<I>(x); for (int i = 0; i < (x & 7); i++) s += mix<I + 1>(s ^ i); return s; }
template <int I> __attribute__((noinline)) int work(int n) {
    std::vector<Key<I>> v; std::map<Key<I>, int> m; std::set<Key<I>> s; std::unordered_map<Key<I>, int, Hash<I>> h; std::deque<Key<I>> d;
    for (int i = 0; i < n; i++) {
        Key<I> k; k.a = deep<I>(i); k.b = std::to_string(mix<I + 2>(i));
        v.push_back(k); m[k] = i; s.insert(k); h[k] += i; d.push_front(k);
    }
    std::sort(v.begin(), v.end());
    std::stable_sort(d.begin(), d.end());
    auto it = std::remove_if(v.begin(), v.end(), [](const Key<I> &k) { return deep<I + 3>(k.a) & 1; });
    v.erase(it, v.end());
    std::function<int(int)> f = [&](int x) { return x + int(m.size()) + deep<I + 4>(x); };
    return std::accumulate(v.begin(), v.end(), 0, [&](int x, const Key<I> &k) { return f(x) + k.a + int(h.count(k)); }) + int(s.size() + d.size());
}
template <int I> int all(int n) { if constexpr (I <= @N@ * 100) return 0; else return work<I>(n) + all<I - 1>(n); }
}
int unit(int n) { return all<@N@ * 100 + @SIZE@>(n); }
`

// generate makes a program of kinds × copies units in dir and returns its path. Compilers take their time: kinds are
// compiled once, copies differ in the name of their one exported function.
func generate(dir string, kinds, copies, size int) (string, error) {
	run := func(name string, args ...string) error {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	var main strings.Builder
	var objects strings.Builder
	body := "int main(int c, char **) { int s = 0;\n"
	for k := range kinds {
		src := strings.NewReplacer("@N@", fmt.Sprint(k+1), "@SIZE@", fmt.Sprint(size)).Replace(source)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("kind%d.cc", k)), []byte(src), 0o644); err != nil {
			return "", err
		}
		if err := run("g++", "-std=c++17", "-O2", "-g", "-c", "-o", fmt.Sprintf("kind%d.o", k), fmt.Sprintf("kind%d.cc", k)); err != nil {
			return "", err
		}
		for c := range copies {
			name := fmt.Sprintf("unit%d_%d", k, c)
			object := name + ".o"
			if err := run("objcopy", fmt.Sprintf("--redefine-sym=_Z4uniti=_Z%d%si", len(name), name), fmt.Sprintf("kind%d.o", k), object); err != nil {
				return "", err
			}
			fmt.Fprintf(&main, "int %s(int);\n", name)
			body += fmt.Sprintf("s += %s(c);\n", name)
			objects.WriteString(object + "\n")
		}
	}
	main.WriteString(body + "return s; }\n")
	if err := os.WriteFile(filepath.Join(dir, "main.cc"), []byte(main.String()), 0o644); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "objects"), []byte(objects.String()), 0o644); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "program")
	if err := run("g++", "-g", "-o", program, "main.cc", "@objects", "-Wl,--build-id=sha1"); err != nil {
		return "", err
	}
	return program, nil
}
