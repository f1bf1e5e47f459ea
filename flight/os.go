// What of the operating system is in no library.

package flight

import (
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// umask is the process's. Nothing reads it without setting it, except the kernel's own account of the process.
func umask() fs.FileMode {
	old := unix.Umask(0o077)
	unix.Umask(old)
	return fs.FileMode(old)
}

// LowerPriority makes this process give way to others: a dump is in no hurry.
func LowerPriority() {
	const nice = 19
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		if tid, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, nice) // threads made later inherit it
		}
	}
}
