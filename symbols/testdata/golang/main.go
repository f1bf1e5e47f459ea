// Prog is read by the tests of Go's function table: methods, generics, closures and inlined calls.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

type counter struct{ n int }

//go:noinline
func (c *counter) add(x int) int { return outer(x) + c.n }

func outer(x int) int { return inner(x) * 3 }

func inner(x int) int {
	s := 0
	for i := range x & 7 {
		s += i * x
	}
	return s + x
}

func describe[K any](k K, x int) string { return fmt.Sprint(k, outer(x)) }

func main() {
	c := &counter{len(os.Args) + foreign()}
	fmt.Println(c.add(3), describe("a", 4), describe(5, 6), strings.Repeat("x", c.n))
	s := []int{3, 1, 2}
	sort.Slice(s, func(i, j int) bool { return outer(s[i]) < outer(s[j]) })
	fmt.Println(s)
}
