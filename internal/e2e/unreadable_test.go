package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hbtrace/hbtrace/internal/testprog"
)

// TestUnreadableProgram: an ordinary user may run a program that he may not read. It is recorded; its addresses are kept, without a
// name (nor a wrong one), its libraries have theirs, and one line says why.
func TestUnreadableProgram(t *testing.T) {
	dir, nobody := ordinaryUser(t)
	program := filepath.Join(dir, "secret")
	code, err := os.ReadFile(demo(t))
	if err == nil {
		err = os.WriteFile(program, code, 0o600)
	}
	if err == nil {
		err = os.Chmod(program, 0o111)
	}
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
	s := startAt(t, filepath.Join(dir, "rec"), testprog.Command{Args: []string{program, "2"}, Env: env, Dir: dir, Cred: nobody}, "-F", "499")
	res := s.finish(t)
	if res.Status() != 0 || !strings.HasPrefix(string(res.Stdout), "served ") {
		t.Fatalf("as nobody: %v", res)
	}
	files, err := filepath.Glob(filepath.Join(dir, "rec*.hbt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("recordings: %v (%v)", files, err)
	}
	report := func(more ...string) string {
		cmd := exec.Command(testprog.Hbtrace(t), append(append([]string{"report"}, more...), files[0])...)
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
		b, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("report %v: %v\n%s", more, err, b)
		}
		return string(b)
	}
	text, doubts := report(), report("--storage")
	if !strings.Contains(text, "secret+0x") {
		t.Errorf("no address of the program in\n%s", text)
	}
	for _, name := range []string{"plate_order", "main.", "panic", "goroutine"} {
		if strings.Contains(text, name) {
			t.Errorf("%q in\n%s", name, text)
		}
	}
	if why := fmt.Sprintf("open %s: permission denied", program); strings.Count(strings.Join(strings.Fields(doubts), " "), why) != 1 {
		t.Errorf("want %q once in\n%s", why, doubts)
	}
}
