package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hbtrace/hbtrace/unwind"
)

// tableSizes prints the size of the compiled tables of what a distribution has, by the text that they describe.
func tableSizes() error {
	fmt.Printf("\n%-34s %10s %10s %12s %8s %8s\n", "unwind tables", "text, KB", "table, KB", "KB per MB", "rows", "rules")
	for _, name := range []string{"libc.so.6", "libstdc++.so.6", "redis-server", "python3", "node", "gdb"} {
		path := filepath.Join("/usr/bin", name) // first: what PATH has may be a script
		if _, err := os.Stat(path); err != nil {
			if path, err = exec.LookPath(name); err != nil {
				path = filepath.Join("/lib/x86_64-linux-gnu", name)
			}
		}
		f, err := os.Open(path)
		if err != nil {
			fmt.Printf("%-34s not here\n", name)
			continue
		}
		table, err := unwind.Compile(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		text, bytes := float64(table.Stats.TextBytes), float64(len(table.Blob()))
		fmt.Printf("%-34s %10.0f %10.0f %12.0f %8d %8d\n", name, text/1024, bytes/1024, bytes/text*1024, table.Stats.Rows, table.Stats.Rules)
	}
	return nil
}
