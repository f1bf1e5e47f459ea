package frames

import (
	"testing"

	"github.com/hbtrace/hbtrace/trace"
)

func TestTitle(t *testing.T) {
	for _, tt := range []struct {
		exe  string
		args []string
		want string
	}{
		{"/usr/lib/postgresql/bin/postgres", []string{"postgres: checkpointer "}, "postgres: checkpointer"},
		{"/usr/bin/redis", []string{"redis-server *:6379"}, "redis-server *:6379"},
		{"/usr/bin/app", []string{"app"}, ""},
		{"/usr/bin/app", []string{"app", "a b"}, ""},
		{"/opt/my app", []string{"/opt/my app"}, ""},
		{"/opt/resolved/my app", []string{"/opt/my app"}, ""},
		{"/usr/bin/app", nil, ""},
		{"/usr/bin/app", []string{"odd \xff"}, "odd \uFFFD"},
	} {
		if got := Title(&trace.Process{Exe: tt.exe, Cmdline: tt.args}); got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.exe, tt.args, got, tt.want)
		}
	}
}
