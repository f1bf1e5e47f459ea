package picture

import (
	"os"
	"path/filepath"
	"testing"
)

// TestShots writes larger pictures to look at into the folder that HBTRACE_SHOTS names.
func TestShots(t *testing.T) {
	dir := os.Getenv("HBTRACE_SHOTS")
	if dir == "" {
		t.Skip("set HBTRACE_SHOTS to a folder to get pictures to look at")
	}
	for name, picture := range map[string]string{
		"timeline": timelineOf(t, server(4, 120).Source(), Options{}),
		"zoom":     timelineOf(t, server(4, 120).Source(), Options{From: 100 * ms, To: 260 * ms}),
		"many":     timelineOf(t, server(30, 400).Source(), Options{MaxThreads: 30}),
		"forks":    timelineOf(t, forks().Source(), Options{}),
		"flame":    flameOf(t, server(4, 120).Source(), FlameOptions{}),
		"flameblk": flameOf(t, server(4, 120).Source(), FlameOptions{Value: "blocked"}),
	} {
		wellFormed(t, picture)
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), []byte(picture), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
