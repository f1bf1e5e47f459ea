// Package names knows how the names of functions are put together: a demangled C++ function's result, parameters and
// template arguments, Rust's paths, traits and hashes. It takes names apart for callers that have little room or look
// for a word in them. Names are untrusted: anything may stand in them, and what is not understood is left as it is.
//
// Time is quadratic in a name's length, because brackets are matched anew from each: names longer than [Longest] are
// for the caller to leave alone or to cut. [Bare] leaves them alone.
package names

import "strings"

// Longest is the length in bytes of a name whose structure is worth looking at.
const Longest = 2 << 10

// DropHash removes the "::h0123456789abcdef" that Rust's legacy mangling ends in.
func DropHash(s string) string {
	if i := strings.LastIndex(s, "::h"); i > 0 && len(s)-i == 19 && strings.Trim(s[i+3:], "0123456789abcdef") == "" {
		return s[:i]
	}
	return s
}

// operatorAt returns the length of an operator's name that starts at s[i], 0 where there is none. Its brackets
// are no brackets: operator<<, operator(), operator->.
func operatorAt(s string, i int) int {
	const word = "operator"
	if !strings.HasPrefix(s[i:], word) || i > 0 && isWord(s[i-1]) {
		return 0
	}
	j := i + len(word)
	if strings.HasPrefix(s[j:], "()") {
		return j + 2 - i
	}
	for j < len(s) && strings.IndexByte("<>=-!+*/%^&|~,[]", s[j]) >= 0 {
		j++
	}
	return j - i
}

// DropReturn removes the type in front of a demangled template function: "std::pair<A, B> f<A>(B)" is f<A>(B).
func DropReturn(s string) string {
	cut := 0
	for i := 0; i < len(s); i++ {
		if n := operatorAt(s, i); n > 0 {
			if i += n; i < len(s) && s[i] == ' ' {
				return s[cut:] // a conversion, operator new: what follows is the name
			}
			i--
			continue
		}
		switch s[i] {
		case '<', '[', '{':
			end := closing(s, i)
			if end < 0 {
				return s
			}
			i = end - 1
		case '(':
			end := closing(s, i)
			if end < 0 {
				return s
			}
			if i > cut && !strings.HasPrefix(s[end:], "::") {
				return s[cut:]
			}
			i = end - 1
		case ' ':
			cut = i + 1
		}
	}
	return s // no parameter list: not a C++ function, a space in it means something else
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// DropParameters removes the parameter list of a demangled C++ function and what follows it (const, [clone]),
// but not a parenthesis inside the name, as in "(anonymous namespace)::f(int)".
func DropParameters(s string) string {
	depth := 0
	for i := 0; i < len(s); i++ {
		if n := operatorAt(s, i); n > 0 {
			i += n - 1
			continue
		}
		switch s[i] {
		case '<', '{', '[':
			depth++
		case '>', '}', ']':
			depth--
		case '(':
			if depth > 0 {
				continue
			}
			end := closing(s, i)
			if end < 0 || i == 0 || strings.HasPrefix(s[end:], "::") {
				if end > 0 && i > 0 && isWord(s[i-1]) && strings.HasPrefix(s[end:], "::") {
					return s[:i] + "()" + DropParameters(s[end:]) // a local name: f(int)::{lambda()#1}
				}
				if end < 0 {
					return s
				}
				i = end - 1
				continue
			}
			return s[:i]
		}
	}
	return s
}

// closing returns the index behind the bracket that closes the one at s[i], -1 where none does.
func closing(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		if n := operatorAt(s, i); n > 0 {
			i += n - 1
			continue
		}
		switch s[i] {
		case '<', '(', '[', '{':
			depth++
		case '>', ')', ']', '}':
			if s[i] == '>' && i > 0 && s[i-1] == '-' {
				continue // -> of a trailing return type
			}
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// FoldArguments replaces template arguments by "…". Rust's "<T as Trait>" at the beginning of a name stays,
// its own arguments and paths folded.
func FoldArguments(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if n := operatorAt(s, i); n > 0 {
			b.WriteString(s[i : i+n])
			i += n - 1
			continue
		}
		if s[i] != '<' {
			b.WriteByte(s[i])
			continue
		}
		end := closing(s, i)
		if end < 0 {
			b.WriteString(s[i:])
			break
		}
		if t, trait, ok := strings.Cut(s[i+1:end-1], " as "); i == 0 && ok {
			b.WriteString("<" + lastName(FoldArguments(t)) + " as " + lastName(FoldArguments(trait)) + ">")
		} else if i == 0 {
			b.WriteString("<" + lastName(FoldArguments(s[1:end-1])) + ">")
		} else if pythonic[s[i+1:end-1]] {
			b.WriteString(s[i:end])
		} else {
			b.WriteString("<…>")
		}
		i = end - 1
	}
	return b.String()
}

// pythonic are the names that Python gives to code without one, in angle brackets: no template arguments.
var pythonic = map[string]bool{
	"module": true, "lambda": true, "listcomp": true, "dictcomp": true, "setcomp": true, "genexpr": true, "locals": true,
}

// lastName is the last component of a path: "alloc::vec::Vec<…>" gives "Vec<…>".
func lastName(s string) string {
	for {
		rest, ok := CutNamespace(s)
		if !ok {
			return s
		}
		s = rest
	}
}

// DropNamespace replaces the first namespace of a name by "…".
func DropNamespace(s string) (string, bool) {
	rest, ok := CutNamespace(strings.TrimPrefix(s, "…::"))
	if !ok {
		return s, false
	}
	return "…::" + rest, true
}

// CutNamespace returns what follows the first "::" outside brackets; false where nothing does.
func CutNamespace(s string) (string, bool) {
	for i := 0; i+1 < len(s); i++ {
		switch {
		case strings.IndexByte("<([{", s[i]) >= 0:
			end := closing(s, i)
			if end < 0 {
				return s, false
			}
			i = end - 1
		case s[i] == ':' && s[i+1] == ':':
			return s[i+2:], len(s) > i+2
		}
	}
	return s, false
}

// Bare is a function's name without what surrounds it in a demangled signature: result, parameters, hash.
func Bare(name string) string {
	if len(name) > Longest {
		return name
	}
	return DropParameters(DropReturn(DropHash(name)))
}
