// The environment that the command is given: the recorder's own, in the same order, plus what carries the agent.
package collector

import (
	"slices"
	"strings"

	"github.com/hbtrace/hbtrace/agent"
)

// environ returns env with the agent in front of LD_PRELOAD and the session's name. Other entries are the same
// bytes at the same places; the two variables stay where they are if they are there.
func environ(env []string, preload, session string, asan bool) []string {
	out := slices.Clone(env)
	// In front: another allocator preloaded before the agent would hide malloc from it. Every entry, because
	// loaders differ in which of several they take.
	out = edit(out, "LD_PRELOAD", func(old string) string {
		if strings.Trim(old, " :") == "" {
			return preload
		}
		return preload + ":" + old
	})
	out = edit(out, agent.SessionVariable, func(string) string { return session })
	if asan {
		const option = "verify_asan_link_order=0"
		out = edit(out, "ASAN_OPTIONS", func(old string) string {
			switch {
			case old == "":
				return option
			case strings.Contains(old, "verify_asan_link_order"):
				return old
			}
			return old + ":" + option
		})
	}
	return out
}

// edit replaces the value of every entry of the variable, or appends one.
func edit(env []string, name string, value func(old string) string) []string {
	found := false
	for i, e := range env {
		if old, ok := strings.CutPrefix(e, name+"="); ok {
			env[i] = name + "=" + value(old)
			found = true
		}
	}
	if !found {
		env = append(env, name+"="+value(""))
	}
	return env
}

// lookup is the value of a variable: the first entry's, as getenv has it.
func lookup(env []string, name string) string {
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}
