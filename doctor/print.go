// A diagnosis as text for people and as JSON for programs.

package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// WriteJSON writes r as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteText writes r as short lines: level, name, value, and below it what to do.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	section(&b, "machine", r.Machine)
	if r.Process != nil {
		section(&b, fmt.Sprintf("process %d", r.Process.PID), r.Process.Findings)
	}
	if r.Program != nil {
		title := "program " + r.Program.Path
		if r.Program.Real != "" {
			title += " → " + r.Program.Real
		}
		section(&b, title, r.Program.Findings)
	}
	if r.Recordable {
		b.WriteString("can be recorded\n")
	} else {
		b.WriteString("cannot be recorded: " + r.Why + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func section(b *strings.Builder, title string, list []Finding) {
	fmt.Fprintf(b, "%s\n", title)
	for _, f := range list {
		fmt.Fprintf(b, "  %-4s  %-15s %s\n", f.Level, f.Name, f.Value)
		if f.Advice != "" {
			fmt.Fprintf(b, "  %-4s  %-15s   → %s\n", "", "", f.Advice)
		}
	}
	b.WriteString("\n")
}
