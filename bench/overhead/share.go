package main

// share.go: how much of a workload's CPU time is spent in the agent. Total CPU time also holds what a recording changes about
// scheduling, which on a machine with other work to do is larger than the agent, in either direction.

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// agentShare runs the workload under hbtrace under perf, and returns the fraction of the workload's cpu-clock samples that
// lie in the agent. What the kernel does for it (signals, reading clocks) is not in it. NaN where there is no perf.
func agentShare(exe, bin string, flags []string, tmp string) (float64, error) {
	perf, err := exec.LookPath("perf")
	if err != nil {
		return math.NaN(), nil
	}
	data := filepath.Join(tmp, "perf.data")
	defer os.Remove(data)
	args := slices.Concat([]string{"record", "-q", "-F", "4000", "-e", "cpu-clock", "-o", data, bin, "run", "-q", "-o", filepath.Join(tmp, "rec")}, flags, []string{"--", exe})
	if err := command("perf record", []string{"WORKLOAD_RESULT=" + filepath.Join(tmp, "result")}, perf, args...); err != nil {
		return 0, err
	}
	name := filepath.Base(exe)
	name = name[:min(len(name), 15)] // TASK_COMM_LEN
	// Not --comm: sorted by object alone, that leaves the kernel out.
	out, err := exec.Command(perf, "report", "-i", data, "--stdio", "--sort", "comm,dso").Output()
	if err != nil {
		return 0, fmt.Errorf("perf report: %w", err)
	}
	total, agent := 0.0, 0.0
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 3 || f[1] != name || !strings.HasSuffix(f[0], "%") {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSuffix(f[0], "%"), 64)
		if err != nil {
			continue
		}
		total += v
		if strings.Contains(f[2], "agent-") {
			agent += v
		}
	}
	if total == 0 {
		return 0, fmt.Errorf("perf report says nothing of %s", name)
	}
	return agent / total, nil
}
