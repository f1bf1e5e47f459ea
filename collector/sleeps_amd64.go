package collector

import "golang.org/x/sys/unix"

// olderSleeps are those of sleeps that newer architectures do not have.
var olderSleeps = map[int64]string{
	unix.SYS_POLL: "poll", unix.SYS_SELECT: "select", unix.SYS_EPOLL_WAIT: "epoll_wait", unix.SYS_PAUSE: "pause",
}
