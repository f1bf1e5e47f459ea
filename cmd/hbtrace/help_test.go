package main

import "testing"

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
