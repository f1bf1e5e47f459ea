// gen_test.go: what the parser takes and refuses.
package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse("/* HB_HOOK(9, comment,\n X */\n#define X\nHB_HOOK(  1, read, CALL, FD, 1, \"\")\nHB_HOOK(20, cond, COND, ADDR, 0, \"GLIBC_2.3.2\")\n#undef HB_HOOK\n")
	want := []hook{{1, "read", "CALL", "FD", "", true}, {20, "cond", "COND", "ADDR", "GLIBC_2.3.2", false}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for src, want := range map[string]string{
		"":                                       "no HB_HOOK",
		"\nHB_HOOK(1, a, B, C, 2, \"\")":         "line 2",
		"HB_HOOK(0, a, B, C, 1, \"\")":           "want 1 to 65535",
		"HB_HOOK(70000, a, B, C, 1, \"\")":       "want 1 to 65535",
		"HB_HOOK(1, a, B, C, 1)":                 "not an HB_HOOK",
		"HB_HOOK_NEW(1, a, B, C, 1, \"\", \"\")": "not an HB_HOOK",
	} {
		if _, err := parse(src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", src, err, want)
		}
	}
}
