package report

import (
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	const insert = "std::pair<cache::Index::iterator, bool> cache::Index<std::string, cache::Entry>::insert<cache::Entry&>(std::string const&, cache::Entry&)"
	for _, tt := range []struct {
		name string
		n    int
		want string
	}{
		{"main", 10, "main"},
		{"main", 4, "main"},
		{insert, 200, insert},
		{insert, 70, "cache::Index<std::string, cache::Entry>::insert<cache::Entry&>"},
		{insert, 30, "cache::Index<…>::insert<…>"},
		{insert, 20, "…::insert<…>"},
		{"operator new(unsigned long)", 20, "operator new"},
		{"std::ostream& std::operator<< <char>(std::ostream&, char const*)", 30, "std::operator<< <char>"},
		{"ns::Table::operator()(int, int) const", 25, "ns::Table::operator()"},
		{"ns::T::operator->() const", 20, "ns::T::operator->"},
		{"(anonymous namespace)::run(int)", 28, "(anonymous namespace)::run"},
		{"app::start(int)::{lambda(int)#1}::operator()(int) const", 48, "app::start()::{lambda(int)#1}::operator()"},
		{"<alloc::vec::Vec<T,A> as core::iter::traits::collect::Extend<T>>::extend", 40, "<Vec<…> as Extend<…>>::extend"},
		{"core::ops::function::FnOnce::call_once::h0123456789abcdef", 50, "core::ops::function::FnOnce::call_once"},
		{"tokio::runtime::scheduler::multi_thread::worker::Context::run_task", 20, "…::Context::run_task"},
		{"aVeryLongNameWithoutAnyStructureAtAll", 11, "aVer…eAtAll"},
		{"libfoo.so.6+0x1234567", 21, "libfoo.so.6+0x1234567"},
		{"f<<<(", 3, "…<("},
		{"\x1b[2J\n\xff", 20, "\ufffd[2J \ufffd"},
		{"長長長長長", 7, "長…長長"},
		{"x", 0, ""},
	} {
		if got := shorten(tt.name, tt.n); got != tt.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", tt.name, tt.n, got, tt.want)
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("std::map<int, f(*)(int)>::operator[](int const&)", 10)
	f.Add("<T as U>::f::{{closure}}", 7)
	f.Add("a\u0301\u202e\xff長<>((", 3)
	f.Fuzz(func(t *testing.T, name string, n int) {
		n %= 300
		got := shorten(name, n)
		if columns(got) > max(n, 0) || !utf8.ValidString(got) || clean(got) != got {
			t.Errorf("shorten(%q, %d) = %q: %d columns", name, n, got, columns(got))
		}
		if columns(clean(name)) <= n && got != clean(name) {
			t.Errorf("shorten(%q, %d) = %q although it fits", name, n, got)
		}
	})
}

func TestNumbers(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0 s ", 999: "999 ns", 1000: "1.00 µs", 12_345: "12.3 µs", 999_499: "999 µs", 999_500: "1.00 ms", 1_500_000_000: "1.50 s ",
		99_949_000_000: "99.9 s ", 100_000_000_000: "1m40s", 3_599_600_000_000: "1h00m", 90_000_000_000_000: "25h00m", -5: "-5 ns",
	} {
		if got := duration(ns); got != want {
			t.Errorf("duration(%d) = %q, want %q", ns, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0 B  ", 1023: "1023 B  ", 1536: "1.50 KiB", 1 << 20: "1.00 MiB", 1<<64 - 1: "16.0 EiB"} {
		if got := byteSize(n); got != want {
			t.Errorf("byteSize(%d) = %q, want %q", n, got, want)
		}
	}
	for _, tt := range []struct {
		part, whole float64
		want        string
	}{{1, 1e6, "<0.1 %"}, {999_999, 1e6, "99.9 %"}, {1, 1, "100 %"}, {0, 5, "0.0 %"}, {1, 0, ""}, {1, 3, "33.3 %"}} {
		if got := percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("percent(%v, %v) = %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1<<64 - 1: "18,446,744,073,709,551,615"} {
		if got := group(n); got != want {
			t.Errorf("group(%d) = %q, want %q", n, got, want)
		}
	}
}
