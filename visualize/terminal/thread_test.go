package terminal

import "testing"

func TestThread(t *testing.T) {
	for _, c := range []struct {
		name string
		n    int
		want string
	}{
		{"main.main.gowrap1/19", 20, "main.main.gowrap1/19"},
		{"main.main.gowrap1/19", 19, "…main.gowrap1/19"},
		{"github.com/some/where.(*Pool).run.func1/1234", 24, "…(*Pool).run.func1/1234"},
		{"github.com/some/where.(*Pool).run.func1/1234", 8, "gi…/1234"},
		{"nodots/7", 4, "n…/7"},
		{"worker-12", 5, "w…-12"},
		{"a/b", 1, "…"},
	} {
		if got := Thread(c.name, c.n); got != c.want || Columns(got) > c.n {
			t.Errorf("%s in %d: %q, want %q", c.name, c.n, got, c.want)
		}
	}
}
