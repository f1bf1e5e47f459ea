package terminal

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
		if got := Shorten(tt.name, tt.n); got != tt.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", tt.name, tt.n, got, tt.want)
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("std::map<int, f(*)(int)>::operator[](int const&)", 10)
	f.Add("<T as U>::f::{{closure}}", 7)
	f.Add("a\u0301\u202e\xff長<>((", 3)
	f.Fuzz(func(t *testing.T, name string, n int) {
		n %= 300
		got := Shorten(name, n)
		if Columns(got) > max(n, 0) || !utf8.ValidString(got) || Clean(got) != got {
			t.Errorf("Shorten(%q, %d) = %q: %d columns", name, n, got, Columns(got))
		}
		if Columns(Clean(name)) <= n && got != Clean(name) {
			t.Errorf("Shorten(%q, %d) = %q although it fits", name, n, got)
		}
	})
}
