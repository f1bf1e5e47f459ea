// Processes by the container, pod or unit that they belong to, for attach and detach.

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	hexadecimal = regexp.MustCompile(`^[0-9a-f]{8,64}$`)
	idInPath    = regexp.MustCompile(`(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:$|/)`)
	podInPath   = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)
)

// belongs reports whether a process with that /proc/PID/cgroup and environ belongs to what is named: a container's id or its beginning, a
// pod's uid, a pod's name (kubelet sets it as HOSTNAME), a systemd unit.
func belongs(name string, cgroup, environ []byte) bool {
	inPod := false
	for line := range bytes.Lines(cgroup) {
		_, path, ok := strings.Cut(strings.TrimSpace(string(line)), "/")
		if !ok {
			continue
		}
		if m := idInPath.FindStringSubmatch(path); m != nil && hexadecimal.MatchString(name) && strings.HasPrefix(m[1], name) {
			return true
		}
		if m := podInPath.FindStringSubmatch(path); m != nil {
			inPod = true
			if strings.ReplaceAll(m[1], "_", "-") == name {
				return true
			}
		}
		if strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope") {
			for part := range strings.SplitSeq(path, "/") {
				if part == name {
					return true
				}
			}
		}
	}
	return inPod && bytes.Contains(append([]byte{0}, environ...), []byte("\x00HOSTNAME="+name+"\x00"))
}

// members are the processes below proc that belong to what is named.
func members(proc, name string) (pids []int) {
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		cgroup, _ := os.ReadFile(filepath.Join(proc, e.Name(), "cgroup"))
		environ, _ := os.ReadFile(filepath.Join(proc, e.Name(), "environ"))
		if belongs(name, cgroup, environ) {
			pids = append(pids, pid)
		}
	}
	return pids
}
