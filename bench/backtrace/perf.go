package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// perf measures perf record --call-graph dwarf on the same tower: what a sample takes of the thread that is sampled (the kernel copies
// its stack, 8 KiB of it), in the file, and of perf script, which unwinds it afterwards.
func perf(exe, tmp string) error {
	if _, err := exec.LookPath("perf"); err != nil {
		return err
	}
	const rate = 10000 // per second of CPU time
	fmt.Printf("\nperf record --call-graph dwarf: per sample, median of 3 (beside bare runs of the same work)\n")
	for _, depth := range depths {
		var inside, after, size, frames []float64
		for range 3 {
			bare, err := spin(exec.Command(exe, strconv.Itoa(depth), "spin"))
			if err != nil {
				return err
			}
			data := filepath.Join(tmp, "perf.data")
			cmd := exec.Command("perf", "record", "-q", "-e", "cpu-clock:u", "-F", strconv.Itoa(rate), "--call-graph", "dwarf", "-o", data,
				exe, strconv.Itoa(depth), "spin")
			sampled, err := spin(cmd)
			if err != nil {
				return err
			}
			info, err := os.Stat(data)
			if err != nil {
				return err
			}
			script := exec.Command("perf", "script", "-F", "ip", "--max-stack", "512", "-i", data)
			out, err := script.Output()
			if err != nil {
				return fmt.Errorf("perf script: %w", err)
			}
			n := float64(strings.Count(string(out), "\n\n")) // an empty line behind each stack
			if n < 100 {
				return fmt.Errorf("%.0f samples say nothing", n)
			}
			inside = append(inside, float64(sampled-bare)/n/1000)
			after = append(after, float64(script.ProcessState.UserTime()+script.ProcessState.SystemTime())/n/1000)
			size = append(size, float64(info.Size())/n/1024)
			frames = append(frames, (float64(strings.Count(string(out), "\n"))-n)/n)
			os.Remove(data)
		}
		fmt.Printf("depth %3d: %.1f µs of the thread, %.1f KiB, %.1f µs of perf script, %.1f frames found\n",
			depth, middle(inside), middle(size), middle(after), middle(frames))
	}
	return nil
}

// spin runs the program's fixed amount of work and returns the CPU time that it says it took.
func spin(cmd *exec.Cmd) (time.Duration, error) {
	cmd.Stderr = io.Discard
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return time.Duration(ns), err
}

func middle(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }
