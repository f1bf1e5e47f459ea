// Command go measures what recording a Go program costs, next to the Go runtime's own CPU profile and execution trace: CPU time of the
// program, each way once in every round, in turn, and the ratio to bare of the same round. Run it in the repository's root:
//
//	go run ./bench/go -hbtrace ./hbtrace
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 7, "how many rounds")
	hb := flag.String("hbtrace", "./hbtrace", "the hbtrace to measure")
	flag.Parse()
	if err := measure(*hb, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench/go:", err)
		os.Exit(1)
	}
}

var ways = []string{"bare", "hbtrace", "cpu profile", "execution trace"}

func measure(hb string, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-go")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	load, file := filepath.Join(dir, "load"), filepath.Join(dir, "out")
	build := exec.Command("go", "build", "-o", load, "./bench/go/load")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	fmt.Printf("| CPU over bare: median (least to most) of %d rounds | %s | %s | %s | bare |\n|---|---|---|---|---|\n", rounds, ways[1], ways[2], ways[3])
	for _, work := range []string{"http", "pool", "sort", "gc"} {
		ratios := map[string][]float64{}
		var bare []float64
		for range rounds {
			var base time.Duration
			for _, way := range ways {
				cpu, err := once(way, hb, load, work, file)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", work, way, err)
				}
				if way == "bare" {
					base = cpu
					bare = append(bare, cpu.Seconds()*1000)
				}
				ratios[way] = append(ratios[way], cpu.Seconds()/base.Seconds())
			}
		}
		slices.Sort(bare)
		fmt.Printf("| %s | %s | %s | %s | %.0f ms |\n", work, spread(ratios["hbtrace"]), spread(ratios["cpu profile"]), spread(ratios["execution trace"]), bare[len(bare)/2])
	}
	return nil
}

func spread(v []float64) string {
	slices.Sort(v)
	return fmt.Sprintf("%.3f (%.3f to %.3f)", v[len(v)/2], v[0], v[len(v)-1])
}

// once is the CPU time of the program itself: the recorder's is not in it.
func once(way, hb, load, work, file string) (time.Duration, error) {
	mode := map[string]string{"cpu profile": "cpu", "execution trace": "trace"}[way]
	if mode == "" {
		mode = "none"
	}
	if way != "hbtrace" {
		c := exec.Command(load, work, mode, file)
		err := c.Run()
		if err != nil {
			return 0, err
		}
		return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
	}
	c := exec.Command(hb, "run", "-q", "-o", file+".hbt", load, work, mode, file)
	if out, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	return recorded(file + ".hbt")
}
