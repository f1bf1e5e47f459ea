package names

import "testing"

func TestBare(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"", ""},
		{"main", "main"},
		{"work::sort_chunk(std::vector<int>&)", "work::sort_chunk"},
		{"std::ostream& std::operator<< <char>(std::ostream&, char const*)", "std::operator<< <char>"},
		{"(anonymous namespace)::run(int)", "(anonymous namespace)::run"},
		{"app::start(int)::{lambda(int)#1}::operator()(int) const", "app::start()::{lambda(int)#1}::operator()"},
		{"core::ops::function::FnOnce::call_once::h0123456789abcdef", "core::ops::function::FnOnce::call_once"},
		{"operator new(unsigned long)", "operator new"},
		{"f(", "f("},
		{")(", ")("},
	} {
		if got := Bare(tt.name); got != tt.want {
			t.Errorf("Bare(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCutNamespace(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		ok         bool
	}{
		{"a::b::c", "b::c", true},
		{"a<b::c>::d", "d", true},
		{"<a::B as c::D>::e", "e", true},
		{"f", "f", false},
		{"a::", "", false},
		{"a<b::c", "a<b::c", false},
	} {
		if got, ok := CutNamespace(tt.name); got != tt.want || ok != tt.ok {
			t.Errorf("CutNamespace(%q) = %q, %v, want %q, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

// FuzzNames: anything may stand in a name.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"a::b<c, d>::e(f) const", "<a as b>::c", "operator<<", "{lambda()#1}", "((", "a->b>", "::h0123456789abcdef"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > Longest {
			return
		}
		if b := Bare(s); len(b) > len(s) {
			t.Errorf("Bare(%q) = %q", s, b)
		}
		FoldArguments(s)
		for rest, ok := s, true; ok; {
			next, more := CutNamespace(rest)
			if more && len(next) >= len(rest) {
				t.Fatalf("CutNamespace(%q) = %q", rest, next)
			}
			rest, ok = next, more
		}
	})
}

// TestFoldPython: Python's names in angle brackets are no template arguments.
func TestFoldPython(t *testing.T) {
	for s, want := range map[string]string{
		"<module>": "<module>", "Handler.<locals>.<lambda>": "Handler.<locals>.<lambda>", "f<module>(std::vector<int>)": "f<module>(std::vector<…>)",
	} {
		if got := FoldArguments(s); got != want {
			t.Errorf("%s becomes %s, want %s", s, got, want)
		}
	}
}
