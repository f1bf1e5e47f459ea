// The kinds of values that flags take, with errors that say what would be right.

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hbtrace/hbtrace/collector"
	"github.com/hbtrace/hbtrace/visualize/report"
)

// durationFlag takes 10, 10s, 1m30s, 250ms; a bare number is seconds, unless units are required.
type durationFlag struct {
	value     time.Duration
	needsUnit bool
	given     bool // tells 0 from no value
}

func (d *durationFlag) Type() string { return "duration" }

func (d *durationFlag) String() string {
	if d.value == 0 {
		return ""
	}
	return d.value.String()
}

func (d *durationFlag) Set(s string) error {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if d.needsUnit && seconds != 0 {
			return fmt.Errorf("needs a unit: %sus or %sms", s, s)
		}
		if !(seconds >= 0 && seconds < math.MaxInt64/1e9) {
			return fmt.Errorf("must not be negative or endless")
		}
		d.value, d.given = time.Duration(seconds*1e9), true
		return nil
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("use a number and s, ms, us or ns, such as 10s or 250ms")
	}
	if v < 0 {
		return fmt.Errorf("must not be negative")
	}
	d.value, d.given = v, true
	return nil
}

// budgetFlag takes a share of the program's CPU time in percent, or off.
type budgetFlag struct{ share float64 }

func (b *budgetFlag) Type() string { return "percent" }

func (b *budgetFlag) String() string {
	if b.share == 0 {
		return "off"
	}
	return strconv.FormatFloat(100*b.share, 'g', -1, 64) + "%"
}

func (b *budgetFlag) Set(s string) error {
	if s == "off" {
		b.share = 0
		return nil
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(v > 0 && v <= 100) {
		return errors.New("use a percentage above 0, such as 2%, or off")
	}
	b.share = v / 100
	return nil
}

// sizeFlag takes bytes with B, K, M or G (powers of 1024).
type sizeFlag struct {
	value     uint64
	needsUnit bool
}

func (z *sizeFlag) Type() string { return "size" }

func (z *sizeFlag) String() string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if z.value > 0 && z.value%(1<<u.shift) == 0 {
			return strconv.FormatUint(z.value>>u.shift, 10) + u.name
		}
	}
	if z.value == 0 {
		return ""
	}
	return strconv.FormatUint(z.value, 10)
}

func (z *sizeFlag) Set(s string) error {
	number := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	shift, hasUnit := uint(0), number != s
	if number != "" {
		if i := strings.IndexByte("KMG", number[len(number)-1]); i >= 0 {
			number, shift, hasUnit = number[:len(number)-1], uint(i+1)*10, true
		}
	}
	v, err := strconv.ParseUint(number, 10, 64)
	switch {
	case err != nil:
		return fmt.Errorf("use a number and K, M or G, such as 64M")
	case z.needsUnit && !hasUnit:
		return fmt.Errorf("needs a unit: %sK or %sM", s, s)
	case v > math.MaxInt64>>shift:
		return fmt.Errorf("too large")
	}
	z.value = v << shift
	return nil
}

// features are what -e can ask for, in the order of documentation.
var features = []string{"cpu", "alloc", "lock", "syscall"}

// eventsFlag takes a comma-separated choice of features.
type eventsFlag struct{ chosen []string }

func (e *eventsFlag) Type() string   { return "list" }
func (e *eventsFlag) String() string { return strings.Join(e.chosen, ",") }

func (e *eventsFlag) Set(s string) error {
	asked := map[string]bool{}
	for _, f := range strings.Split(s, ",") {
		if !slices.Contains(features, f) {
			return fmt.Errorf("unknown event %q: use some of %s", f, strings.Join(features, ","))
		}
		asked[f] = true
	}
	e.chosen = nil
	for _, f := range features {
		if asked[f] {
			e.chosen = append(e.chosen, f)
		}
	}
	return nil
}

// unwindFlag is how stacks are walked.
type unwindFlag string

func (u *unwindFlag) Type() string   { return "how" }
func (u *unwindFlag) String() string { return string(*u) }

func (u *unwindFlag) Set(s string) error {
	if s != "fp" && s != "auto" {
		return fmt.Errorf("use auto (unwind tables, frame pointers where there are none) or fp (frame pointers)")
	}
	*u = unwindFlag(s)
	return nil
}

// kernelFlag says whether the kernel is asked: auto, on or off.
type kernelFlag struct{ mode collector.Kernel }

var kernelModes = []string{collector.KernelAuto: "auto", collector.KernelOn: "on", collector.KernelOff: "off"}

func (k *kernelFlag) Type() string   { return "when" }
func (k *kernelFlag) String() string { return kernelModes[k.mode] }

func (k *kernelFlag) Set(s string) error {
	i := slices.Index(kernelModes, s)
	if i < 0 {
		return fmt.Errorf("use auto, on or off")
	}
	k.mode = collector.Kernel(i)
	return nil
}

// signalFlag takes the sampling signal: urg, or rtmin+N with glibc's SIGRTMIN, which leaves two to threads.
type signalFlag struct{ number int }

const (
	sigRTMin = 34
	sigRTMax = 64
)

func (*signalFlag) Type() string { return "signal" }

func (s *signalFlag) String() string {
	if s.number >= sigRTMin {
		return "rtmin+" + strconv.Itoa(s.number-sigRTMin)
	}
	return "urg"
}

func (s *signalFlag) Set(v string) error {
	name := strings.TrimPrefix(strings.ToLower(v), "sig")
	if name == "urg" {
		s.number = 0
		return nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(name, "rtmin"), "+"))
	if name == "rtmin" {
		n, err = 0, nil
	}
	if !strings.HasPrefix(name, "rtmin") || err != nil || n < 0 || n > sigRTMax-sigRTMin {
		return fmt.Errorf("use urg, or rtmin+0 to rtmin+%d", sigRTMax-sigRTMin)
	}
	s.number = sigRTMin + n
	return nil
}

// values are what a tree, folded stacks and a flame graph can add up.
const values = "cpu, wall, blocked, delay, contentions, alloc_space, alloc_objects, inuse_space, inuse_objects"

// sortFlag is the order of functions: self or cum.
type sortFlag report.Sort

func (*sortFlag) Type() string { return "order" }

func (s *sortFlag) String() string {
	if *s == sortFlag(report.SortCumulative) {
		return "cum"
	}
	return "self"
}

func (s *sortFlag) Set(v string) error {
	switch v {
	case "self":
		*s = sortFlag(report.SortSelf)
	case "cum", "cumulative":
		*s = sortFlag(report.SortCumulative)
	default:
		return fmt.Errorf("use self or cum")
	}
	return nil
}
