// The filter in front of expressions over intervals: which hooked functions, and how long at least.

package trigger

import (
	"math"

	"github.com/expr-lang/expr/ast"
	"github.com/hbtrace/hbtrace/hooks"
	"github.com/hbtrace/hbtrace/trace"
)

// filter has, for each hook, the least time of an interval that its trigger can hold of; math.MaxInt64: of none.
type filter []int64

func newFilter(least func(hooks.Info) int64) filter {
	f := make(filter, hooks.Table[len(hooks.Table)-1].ID+1)
	for i := range f {
		f[i] = math.MaxInt64
	}
	for _, h := range hooks.Table {
		f[h.ID] = least(h)
	}
	return f
}

// all lets everything through.
func all() filter { return newFilter(func(hooks.Info) int64 { return 0 }) }

// classes are the names that are times of intervals of some classes only.
var classes = map[string]func(hooks.Class) bool{
	"lock": func(c hooks.Class) bool { return c == hooks.ClassLock },
	"cond": func(c hooks.Class) bool { return c == hooks.ClassCond },
	"sem":  func(c hooks.Class) bool { return c == hooks.ClassSem },
	"wait": hooks.Class.Waits,
	"took": func(hooks.Class) bool { return true },
	"ms":   func(hooks.Class) bool { return true },
}

// filterOf is what an expression needs to hold. What it does not understand may hold of everything.
func filterOf(n ast.Node) filter {
	b, ok := n.(*ast.BinaryNode)
	if !ok {
		return all()
	}
	switch b.Operator {
	case "&&", "and":
		return combine(filterOf(b.Left), filterOf(b.Right), func(x, y int64) int64 { return max(x, y) })
	case "||", "or":
		return combine(filterOf(b.Left), filterOf(b.Right), func(x, y int64) int64 { return min(x, y) })
	case ">", ">=":
		id, ok := b.Left.(*ast.IdentifierNode)
		least, known := number(b.Right)
		if of := classes[identifier(id, ok)]; of != nil && known && least > 0 {
			if id.Value == "ms" {
				least *= 1e6
			}
			return newFilter(func(h hooks.Info) int64 {
				if of(h.Class) {
					return int64(min(least, math.MaxInt64/2))
				}
				return math.MaxInt64
			})
		}
	case "==":
		id, ok := b.Left.(*ast.IdentifierNode)
		name, isString := b.Right.(*ast.StringNode)
		if identifier(id, ok) == "call" && isString {
			return newFilter(func(h hooks.Info) int64 {
				if h.Name == name.Value {
					return 0
				}
				return math.MaxInt64
			})
		}
	}
	return all()
}

func identifier(id *ast.IdentifierNode, ok bool) string {
	if !ok {
		return ""
	}
	return id.Value
}

func number(n ast.Node) (float64, bool) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		return float64(n.Value), true
	case *ast.FloatNode:
		return n.Value, true
	}
	return 0, false
}

func combine(a, b filter, f func(int64, int64) int64) filter {
	for i := range a {
		a[i] = f(a[i], b[i])
	}
	return a
}

// wants reports whether a trigger may hold of an event.
func (f filter) wants(e *trace.Event) bool {
	return (e.Kind == trace.KindWait || e.Kind == trace.KindCall) && int(e.Hook) < len(f) && int64(e.Time-e.Start) >= f[e.Hook]
}

// name says what a filter lets through, for a file's name.
func (f filter) name() string {
	wanted := map[hooks.Class]bool{}
	only, n := "", 0
	for _, h := range hooks.Table {
		if f[h.ID] != math.MaxInt64 {
			wanted[h.Class] = true
			only, n = h.Name, n+1
		}
	}
	switch {
	case n == 1:
		return only
	case len(wanted) == 1 && wanted[hooks.ClassLock]:
		return "lock"
	case len(wanted) == 1 && wanted[hooks.ClassCond]:
		return "cond"
	case len(wanted) == 1 && wanted[hooks.ClassSem]:
		return "sem"
	}
	return "wait"
}
