package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// comparedFor is how long each recording is.
const comparedFor = 3 * time.Second

// comparison records attach/testdata/busy.c by run and by attach in turn.
func comparison(dir string, rounds int) error {
	hbtrace, exe := filepath.Join(dir, "hbtrace"), filepath.Join(dir, "busy")
	if out, err := exec.Command("go", "build", "-o", hbtrace, "./cmd/hbtrace").CombinedOutput(); err != nil {
		return fmt.Errorf("build hbtrace: %w: %s", err, out)
	}
	if out, err := exec.Command("gcc", "-O2", "-g", "-o", exe, "attach/testdata/busy.c", "-pthread").CombinedOutput(); err != nil {
		return fmt.Errorf("build the workload: %w: %s", err, out)
	}
	fmt.Printf("overlap of shares in percent, busy.c, %v each; first two recordings by run, then run and attach\n%-8s", comparedFor, "round")
	for _, m := range measures {
		fmt.Printf(" %16s", m.name)
	}
	fmt.Println()
	for round := range rounds {
		a, err := byRun(hbtrace, exe, filepath.Join(dir, "a"))
		if err != nil {
			return err
		}
		c, err := byAttach(hbtrace, exe, filepath.Join(dir, "c"))
		if err != nil {
			return err
		}
		b, err := byRun(hbtrace, exe, filepath.Join(dir, "b"))
		if err != nil {
			return err
		}
		fmt.Printf("%-8d", round+1)
		for _, m := range measures {
			fmt.Printf(" %7.1f %7.1f ", 100*overlap(a[m.name], b[m.name]), 100*overlap(a[m.name], c[m.name]))
		}
		fmt.Println()
	}
	return nil
}

// byRun records a program from its start, and takes the report.
func byRun(hbtrace, exe, prefix string) (map[string]map[string]float64, error) {
	c := exec.Command(hbtrace, "run", "-q", "-d", comparedFor.String(), "-o", prefix, exe)
	c.Stderr = os.Stderr
	if err := c.Start(); err != nil {
		return nil, err
	}
	defer c.Process.Kill()
	time.Sleep(comparedFor + 500*time.Millisecond) // the end of the program is not in it
	ended := false
	for _, pid := range descendants(c.Process.Pid) {
		if link, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); link == exe {
			ended = syscall.Kill(pid, syscall.SIGTERM) == nil
		}
	}
	if !ended {
		return nil, fmt.Errorf("the program below hbtrace run was not found")
	}
	if err := c.Wait(); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return sharesOf(hbtrace, prefix)
}

// descendants are the processes below one, threads' children included.
func descendants(pid int) (out []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			child, _ := strconv.Atoi(f)
			out = append(append(out, child), descendants(child)...)
		}
	}
	return out
}

// byAttach records a program after its first second, and takes the report.
func byAttach(hbtrace, exe, prefix string) (map[string]map[string]float64, error) {
	p := exec.Command(exe)
	if err := p.Start(); err != nil {
		return nil, err
	}
	defer p.Process.Kill()
	time.Sleep(time.Second)
	out, err := exec.Command(hbtrace, "attach", "-q", "-d", comparedFor.String(), "-o", prefix, strconv.Itoa(p.Process.Pid)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("attach: %w: %s", err, out)
	}
	p.Process.Signal(syscall.SIGTERM)
	if err := p.Wait(); err != nil {
		return nil, fmt.Errorf("the program that was attached to: %w", err)
	}
	return sharesOf(hbtrace, prefix)
}

// measure1 is a distribution in a recording: where its rows are in the report, what names one and what weighs it.
type measure1 struct {
	name   string
	flags  []string
	rows   string
	key    []string
	weight string
}

var measures = []measure1{
	{"CPU by function", []string{"--cpu"}, "functions", []string{"function"}, "self_ns"},
	{"blocked by call", []string{"--blocked"}, "places", []string{"function", "call"}, "total_ns"},
	{"waits", []string{"--locks"}, "edges_by_function", []string{"kind", "function"}, "total_ns"},
	{"edges", []string{"--locks"}, "edges_by_function", []string{"kind", "function", "released_in"}, "total_ns"},
	{"CPU stacks", []string{"--tree", "--value", "cpu"}, "", nil, ""},
	{"blocked stacks", []string{"--tree", "--value", "blocked"}, "", nil, ""},
}

// sharesOf reads the distributions of a recording.
func sharesOf(hbtrace, prefix string) (map[string]map[string]float64, error) {
	out := map[string]map[string]float64{}
	for _, m := range measures {
		text, err := exec.Command(hbtrace, append(append([]string{"report", "--json"}, m.flags...), prefix+".hbt")...).Output()
		if err != nil {
			return nil, fmt.Errorf("report %v: %w", m.flags, err)
		}
		var all map[string]any
		if err := json.Unmarshal(text, &all); err != nil {
			return nil, err
		}
		sums := map[string]float64{}
		if m.rows == "" {
			fold(all["tree"], "", sums)
		}
		rows, _ := all[m.rows].([]any)
		for _, r := range rows {
			row := r.(map[string]any)
			var key []string
			for _, k := range m.key {
				if k == "released_in" && row["kind"] == "join" {
					continue // a thread's end: in the C library, behind different functions of the agent
				}
				key = append(key, fmt.Sprint(row[k]))
			}
			w, _ := row[m.weight].(float64)
			sums[strings.Join(key, " | ")] += w
		}
		out[m.name] = sums
	}
	return out, nil
}

// roots are the C library's frames below a thread's first function: a thread that was there before the attach has them, one that the agent saw begin has not.
var roots = map[string]bool{"clone3": true, "clone": true, "start_thread": true}

// fold adds the self values of a call tree by stack.
func fold(node any, above string, into map[string]float64) {
	n, _ := node.(map[string]any)
	path := above
	if name := fmt.Sprint(n["function"]); !roots[name] {
		path += ";" + name
	}
	if self, _ := n["self"].(float64); self > 0 {
		into[path] += self
	}
	children, _ := n["children"].([]any)
	for _, c := range children {
		fold(c, path, into)
	}
}

// overlap is the sum of the smaller shares: 1 where two distributions are the same.
func overlap(a, b map[string]float64) (sum float64) {
	all := func(m map[string]float64) (n float64) {
		for _, v := range m {
			n += v
		}
		return n
	}
	na, nb := all(a), all(b)
	if na == 0 || nb == 0 {
		return 0
	}
	for k, v := range a {
		sum += min(v/na, b[k]/nb)
	}
	return sum
}
