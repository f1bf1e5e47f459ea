package attach

import "testing"

// TestSeccompFilters: a filter is passed only where each needed system call is let through on every way that cannot be excluded.
func TestSeccompFilters(t *testing.T) {
	load := func(at uint32) instruction { return instruction{Code: 0x20, K: at} }
	jeq := func(k uint32, jt, jf uint8) instruction { return instruction{Code: 0x15, Jt: jt, Jf: jf, K: k} }
	jset := func(k uint32, jt, jf uint8) instruction { return instruction{Code: 0x45, Jt: jt, Jf: jf, K: k} }
	ret := func(k uint32) instruction { return instruction{Code: 0x06, K: k} }
	const allow, kill, errno = retAllow, 0x80000000, retErrno | 1
	head := []instruction{load(4), jeq(auditArch, 1, 0), ret(kill), load(0)}
	with := func(more ...instruction) []instruction { return append(head[:len(head):len(head)], more...) }
	for _, c := range []struct {
		name   string
		filter []instruction
		want   string
	}{
		{"all allowed", with(ret(allow)), ""},
		{"another call is killed", with(jeq(161, 0, 1), ret(kill), ret(allow)), ""},
		{"socketpair is killed", with(jeq(53, 0, 1), ret(kill), ret(allow)), "socketpair"},
		{"madvise fails", with(jeq(28, 0, 1), ret(errno), ret(allow)), "madvise"},
		{"open fails, which does no harm", with(jeq(2, 0, 1), ret(errno), ret(allow)), ""},
		{"open is killed", with(jeq(2, 0, 1), ret(kill), ret(allow)), "open"},
		{"memory both writable and executable is refused", with(jeq(9, 0, 5), load(32), instruction{Code: 0x54, K: 6}, jeq(6, 0, 1), ret(errno), ret(allow), ret(allow)), ""},
		{"executable memory is refused", with(jeq(9, 0, 3), load(32), jset(4, 0, 1), ret(errno), ret(allow)), "mmap"},
		{"it depends on an address", with(jeq(11, 0, 3), load(16), jset(8, 0, 1), ret(kill), ret(allow)), "munmap"},
		{"by scratch memory", with(instruction{Code: 0x02, K: 3}, instruction{Code: 0x00, K: 1}, instruction{Code: 0x60, K: 3}, jeq(47, 0, 1), ret(kill), ret(allow)), "recvmsg"},
		{"numbers above a bound", with(instruction{Code: 0x35, Jt: 0, Jf: 1, K: 300}, ret(kill), ret(allow)), "prlimit64"},
		{"what was computed is returned", with(load(16), instruction{Code: 0x16}), "mmap (its filter returns what it computed)"},
		{"past its end", with(), "mmap (its filter runs past its end)"},
	} {
		if got := refusedBy(c.filter); got != c.want {
			t.Errorf("%s: refused by %q, want %q", c.name, got, c.want)
		}
	}
}
