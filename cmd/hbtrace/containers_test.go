package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMembers: processes are found by container, pod and unit as Docker, containerd, CRI-O, kubelet and systemd write them.
func TestMembers(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	other := strings.Repeat("fedcba9876543210", 4)
	const pod = "12345678_9abc_def0_1234_56789abcdef0"
	proc := t.TempDir()
	for pid, files := range map[int][2]string{
		11: {"0::/system.slice/docker-" + id + ".scope\n", "A=1\x00HOSTNAME=web-1\x00"},
		12: {"12:pids:/docker/" + other + "\n0::/\n", ""},
		13: {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + pod + ".slice/cri-containerd-" + other + ".scope\n",
			"PATH=/bin\x00HOSTNAME=web-7d4b9\x00"},
		14: {"4:memory:/kubepods/besteffort/pod" + strings.ReplaceAll(pod, "_", "-") + "/" + id + "\n", "HOSTNAME=web-7d4b9\x00"},
		15: {"0::/system.slice/nginx.service\n", "HOSTNAME=web-7d4b9\x00"},
		16: {"0::/\n", ""},
	} {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{"cgroup", "environ"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(files[i]), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, want := range map[string][]int{
		id: {11, 14}, id[:12]: {11, 14}, other[:8]: {12, 13}, id[:4]: nil, strings.ReplaceAll(pod, "_", "-"): {13, 14},
		"web-7d4b9": {13, 14}, "web-1": nil, "web-7d4b": nil, "nginx.service": {15}, "nginx": nil, "sshd.service": nil,
	} {
		if got := members(proc, name); !slices.Equal(got, want) {
			t.Errorf("%s: processes %v, want %v", name, got, want)
		}
	}
}
