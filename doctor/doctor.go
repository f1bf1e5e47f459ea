// The vocabulary of a diagnosis: what was checked, how it stands, what to do about it.

// Package doctor tells what this machine and one program allow hbtrace to record, and what to do about the
// rest. It looks and never changes anything: no file is left behind, no process is started or stopped.
package doctor

import (
	"fmt"
	"path/filepath"
	"strconv"
)

// Level is how good a finding is.
type Level string

const (
	OK   Level = "ok"   // as it should be
	Note Level = "note" // works, something is less than it could be
	Warn Level = "warn" // part of a recording will be missing or doubtful
	Fail Level = "fail" // nothing can be recorded
)

// Finding is the result of one check.
type Finding struct {
	Level  Level  `json:"level"`
	Name   string `json:"name"`
	Value  string `json:"value"`
	Advice string `json:"advice,omitempty"` // what to do about it; "" nothing
}

// Report is a whole diagnosis.
type Report struct {
	Machine []Finding `json:"machine"`
	Program *Program  `json:"program,omitempty"`
	Process *Process  `json:"process,omitempty"`
	// Recordable is false when some finding is a [Fail].
	Recordable bool `json:"recordable"`
	// Why is the first Fail's line when Recordable is false.
	Why string `json:"why,omitempty"`
}

// Diagnose looks at the machine and, unless target is "", at a program (a path, or a name found in $PATH) or
// a running process (a decimal pid). The error is that of a target that is not there or cannot be read.
func Diagnose(target string) (*Report, error) {
	r := &Report{Machine: Machine()}
	switch pid, isPID := asPID(target); {
	case target == "":
	case isPID:
		p, err := LookProcess(pid)
		if err != nil {
			return nil, err
		}
		r.Process = p
		r.Program = p.program
	default:
		p, err := LookProgram(target)
		if err != nil {
			return nil, err
		}
		r.Program = p
	}
	r.conclude()
	return r, nil
}

func (r *Report) conclude() {
	all := append([]Finding(nil), r.Machine...)
	if r.Program != nil {
		all = append(all, r.Program.Findings...)
	}
	if r.Process != nil {
		all = append(all, r.Process.Findings...)
	}
	r.Recordable = true
	for _, f := range all {
		if f.Level == Fail {
			r.Recordable, r.Why = false, f.Name+": "+f.Value
			return
		}
	}
}

// asPID accepts plain numbers only: a program whose name is a number is given as ./123.
func asPID(s string) (int, bool) {
	pid, err := strconv.Atoi(s)
	return pid, err == nil && pid > 0 && filepath.Base(s) == s && s[0] != '+'
}

// findings collects in the order in which they are to be read.
type findings []Finding

func (f *findings) add(l Level, name, advice, format string, args ...any) {
	*f = append(*f, Finding{Level: l, Name: name, Value: fmt.Sprintf(format, args...), Advice: advice})
}
