// Pools: several threads wait for what several others signal. Who let whom go on the program does not know; the kernel does.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"text/tabwriter"
)

var poolScenarios = []string{"pool-inside", "pool-outside", "pool-semaphore"}

// pools prints, per scenario, how often certain and likely edges name the thread that the kernel saw waking, and how often
// likely ones say that they do. exe is truth.c's program.
func pools(w io.Writer, bin, exe, tmp, only string, rounds int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "pool\twaits\tcertain\tright\tlikely\tclaimed\tright\t\n")
	for _, s := range poolScenarios {
		if only != "" && only != s {
			continue
		}
		prefix := filepath.Join(tmp, "pool")
		if err := command(bin, "run", "-q", "--kernel", "on", "-o", prefix, "--", exe, s, fmt.Sprint(rounds), filepath.Join(tmp, "truth")); err != nil {
			fmt.Fprintf(os.Stderr, "locks: pools are left out, since only the kernel knows the truth of them: %v\n", err)
			return nil
		}
		out, err := exec.Command(bin, "report", prefix+".hbt", "--self-check", "--json").Output()
		if err != nil {
			return fmt.Errorf("hbtrace report --self-check of %s: %w", s, err)
		}
		var r struct {
			Check struct {
				Edges []struct {
					Kind               string
					Certain            bool
					Same, Other        uint64
					Agreement, Claimed float64
				}
			} `json:"self_check"`
		}
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("the self-check of %s: %w", s, err)
		}
		var n [2]uint64
		var right, claimed [2]float64
		for _, e := range r.Check.Edges {
			if e.Kind != "condvar" && e.Kind != "semaphore" {
				continue
			}
			i := 0
			if e.Certain {
				i = 1
			}
			n[i], right[i], claimed[i] = e.Same+e.Other, e.Agreement, e.Claimed
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f %%\t%d\t%.1f %%\t%.1f %%\t\n", s, n[0]+n[1], n[1], 100*right[1], n[0], 100*claimed[0], 100*right[0])
	}
	return t.Flush()
}
