package collector

import (
	"slices"
	"testing"
)

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want []string
	}{
		{"", nil},
		{"/bin/a\x00-x\x00", []string{"/bin/a", "-x"}},
		{"redis-server\x00--save\x00\x00", []string{"redis-server", "--save", ""}},
		{"postgres: checkpointer \x00\x00\x00\x00", []string{"postgres: checkpointer "}},
		{"nginx: worker process\x00", []string{"nginx: worker process"}},
		{"a b\x00c\x00\x00", []string{"a b", "c", ""}},
		{"odd\xff\x00", []string{"odd\uFFFD"}},
	} {
		if got := arguments([]byte(tt.raw)); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.raw, got, tt.want)
		}
	}
}
