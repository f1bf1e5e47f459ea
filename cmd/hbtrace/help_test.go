package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestCommandsAreGrouped: help lists every command under a heading.
func TestCommandsAreGrouped(t *testing.T) {
	root := newRoot()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.GroupID == "" {
			t.Errorf("%s is in no group: main.go has the list", c.Name())
		}
	}
}

// TestReference: docs/reference.md names every flag of the commands that read recordings.
func TestReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	known := strings.FieldsFunc(string(text), func(r rune) bool { return strings.ContainsRune(" `,[]|()\n", r) })
	for _, c := range newRoot().Commands() {
		if !slices.Contains([]string{"report", "export", "view", "top"}, c.Name()) {
			continue
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !slices.Contains(known, "--"+f.Name) {
				t.Errorf("docs/reference.md does not name --%s of %s", f.Name, c.Name())
			}
		})
	}
}
