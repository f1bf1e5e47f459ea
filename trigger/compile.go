// What the names in an expression say it speaks of, and its compilation.

package trigger

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
)

// environments are what expressions may speak of.
var environments = []struct {
	kind Kind
	env  any
	what string
}{
	{KindInterval, Interval{}, "a wait or call"},
	{KindState, State{}, "the program's state"},
	{KindEnd, End{}, "the program's end"},
}

// namesOf lists the names that an environment has.
func namesOf(env any) (names []string) {
	t := reflect.TypeOf(env)
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("expr"))
	}
	return names
}

// compile makes the trigger's program of an expression.
func (t *Trigger) compile(body string) error {
	text, places := translate(body)
	// Positions are in the expression that was given, where the preset's is another one nowhere.
	at := func(column int) int {
		runes := []rune(text)
		if column < 0 || column > len(runes) || !strings.Contains(t.Text, body) {
			return -1
		}
		return strings.Index(t.Text, body) + places[len(string(runes[:column]))]
	}
	tree, err := parser.Parse(text)
	if err != nil {
		return t.failed(err, at)
	}
	var idents identifiers
	ast.Walk(&tree.Node, &idents)
	chosen := -1
	for _, id := range idents {
		i := slices.IndexFunc(environments, func(e struct {
			kind Kind
			env  any
			what string
		}) bool {
			return slices.Contains(namesOf(e.env), id.Value)
		})
		if i < 0 {
			var all []string
			for _, e := range environments {
				all = append(all, namesOf(e.env)...)
			}
			return &Error{t.Text, "there is no " + id.Value + ": use " + strings.Join(all, ", "), at(id.Location().From)}
		}
		if chosen >= 0 && chosen != i {
			return &Error{t.Text, id.Value + " is of " + environments[i].what + ", what stands before it of " +
				environments[chosen].what + ": use two triggers", at(id.Location().From)}
		}
		chosen = i
	}
	if chosen < 0 {
		return &Error{t.Text, "it speaks of nothing that is recorded", 0}
	}
	t.Kind = environments[chosen].kind
	t.run, err = expr.Compile(text, expr.Env(environments[chosen].env), expr.AsBool())
	if err != nil {
		return t.failed(err, at)
	}
	if t.Kind == KindInterval {
		t.filter = filterOf(tree.Node)
		if t.Name == "on" {
			t.Name = t.filter.name()
		}
	} else if t.Name == "on" {
		t.Name = idents[0].Value
	}
	return nil
}

// failed is the library's error in one line.
func (t *Trigger) failed(err error, at func(int) int) error {
	var e *file.Error
	if errors.As(err, &e) {
		return &Error{t.Text, strings.ToLower(e.Message[:1]) + e.Message[1:], at(e.Column)}
	}
	return &Error{t.Text, strings.ReplaceAll(err.Error(), "\n", "; "), -1}
}

// identifiers are the names in an expression, in order.
type identifiers []*ast.IdentifierNode

func (ids *identifiers) Visit(node *ast.Node) {
	if id, ok := (*node).(*ast.IdentifierNode); ok {
		*ids = append(*ids, id)
	}
}
