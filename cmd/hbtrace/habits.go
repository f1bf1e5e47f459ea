// Habits: what people type who come from perf, strace and gdb, and what to type here; man pages.

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// habits are commands of other tools, and what does the same here.
var habits = map[string]string{
	"record":   "hbtrace run ./app records a program from its start",
	"stat":     "hbtrace run ./app counts as it records, and ends with a summary; hbtrace report --threads shows each thread",
	"script":   "hbtrace export --folded - writes stacks as text, and hbtrace report --json everything",
	"annotate": "hbtrace report --cpu names the line of each function; go tool pprof -list FUNCTION hbtrace.pb.gz shows its source",
	"diff":     "hbtrace report --diff A B compares two recordings",
	"trace":    "hbtrace run ./app records waits and blocking calls with the rest",
	"lock":     "hbtrace report --locks shows the locks of a recording",
	"mem":      "hbtrace report --alloc shows the allocations of a recording",
	"kill":     "a recording ends with its program, after -d TIME, or when hbtrace run gets SIGINT",
}

// attaching is what to type for a process that runs already.
func attaching(root *cobra.Command) string {
	for _, c := range root.Commands() {
		if c.Name() == "attach" {
			return "hbtrace attach PID records a process that runs already"
		}
	}
	return "hbtrace cannot attach to a process that runs already: start it with hbtrace run, or with hbtrace run --keep 60s to save its " +
		"last seconds when something happens"
}

// unknownCommand is the error for a first word that is no command: what does the same here, or what was probably meant.
func unknownCommand(root *cobra.Command, word string) error {
	if word == "attach" {
		return fmt.Errorf("attach: %s", attaching(root))
	}
	if here := habits[word]; here != "" {
		return fmt.Errorf("unknown command %s: %s", word, here)
	}
	if _, err := os.Stat(word); err == nil || strings.ContainsRune(word, '/') {
		if strings.HasSuffix(word, suffixTrace) {
			return fmt.Errorf("%s is not a command: hbtrace report %s, or hbtrace view %s", word, shellWord(word), shellWord(word))
		}
		return fmt.Errorf("%s is not a command: to record it: hbtrace run %s", word, shellWord(word))
	}
	root.SuggestionsMinimumDistance = 2
	if near := root.SuggestionsFor(word); len(near) > 0 {
		return fmt.Errorf("unknown command %s: did you mean %s?", word, strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %s: hbtrace --help lists them; to record a program: hbtrace run %s", word, shellWord(word))
}

// addPID makes -p PID, as perf, strace and gdb take it, an error that says what to type.
func addPID(root *cobra.Command, c *cobra.Command) {
	pid := c.Flags().StringP("pid", "p", "", "")
	_ = c.Flags().MarkHidden("pid") // it is there: this cannot fail
	run, args := c.RunE, c.Args
	c.Args = func(cmd *cobra.Command, list []string) error {
		if *pid != "" {
			return nil
		}
		return args(cmd, list)
	}
	c.RunE = func(cmd *cobra.Command, list []string) error {
		if *pid != "" {
			return fmt.Errorf("-p %s: %s", *pid, strings.ReplaceAll(attaching(root), " PID ", " "+*pid+" "))
		}
		return run(cmd, list)
	}
}

// misspelt adds the nearest flag to the error about one that is unknown.
func misspelt(c *cobra.Command, err error) error {
	before, rest, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return err
	}
	name, after, _ := strings.Cut(rest, ":")
	best, least := "", 3
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := distance(name, f.Name); d < least && !f.Hidden {
			best, least = f.Name, d
		}
	})
	if best == "" {
		return err
	}
	return fmt.Errorf("%sunknown flag: --%s (did you mean --%s?):%s", before, name, best, after)
}

// distance is how many letters must be added, removed or replaced to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// unwindWords are taken for the value of -g. dwarf and lbr are perf's: they are refused with the words that are right.
var unwindWords = []string{"auto", "fp", "dwarf", "lbr"}

// joinUnwind lets -g stand alone, as perf's does, and still take a value in the next word: -g fp is -g=fp.
func joinUnwind(root *cobra.Command, args []string) []string {
	c, _, err := root.Find(args)
	if err != nil || c.Flags().Lookup("unwind") == nil {
		return args
	}
	for i := 1; i < len(args); i++ {
		word := args[i]
		if word == "--" || !strings.HasPrefix(word, "-") {
			break // what follows is the program's
		}
		name := strings.TrimLeft(word, "-")
		if name == "g" || name == "unwind" {
			if i+1 < len(args) && slices.Contains(unwindWords, args[i+1]) {
				return slices.Concat(args[:i], []string{word + "=" + args[i+1]}, args[i+2:])
			}
			continue
		}
		f := c.Flags().Lookup(name)
		if f == nil && len(name) == 1 {
			f = c.Flags().ShorthandLookup(name)
		}
		if f != nil && f.NoOptDefVal == "" {
			i++ // its value
		}
	}
	return args
}

// newMan writes man pages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write man pages of all commands into a directory",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("man: %w", bare(err))
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			never := time.Unix(0, 0).UTC() // the same pages at any time
			if err := doc.GenManTree(root, &doc.GenManHeader{Title: "HBTRACE", Section: "1", Date: &never, Source: "hbtrace"}, args[0]); err != nil {
				return fmt.Errorf("man: writing into %s: %w", args[0], bare(err))
			}
			return nil
		},
	}
}

// keepOld renames files that exist to NAME.old, as perf does, and returns what takes that back.
func keepOld(paths ...string) (undo func(), err error) {
	var moved []string
	undo = func() {
		for _, p := range moved {
			if _, err := os.Lstat(p); os.IsNotExist(err) {
				_ = os.Rename(p+".old", p)
			}
		}
	}
	for _, p := range paths {
		st, err := os.Lstat(p)
		if err != nil || !st.Mode().IsRegular() {
			continue // nothing there, or a device or a link, which is written to
		}
		if err := os.Rename(p, p+".old"); err != nil {
			undo()
			return nil, fmt.Errorf("keeping %s as %s.old: %w: choose another name with -o", p, p, bare(err))
		}
		moved = append(moved, p)
	}
	return undo, nil
}
