// Command build compiles the agent and writes what the repository commits of it: the shared objects, and
// agent/zsources*.go with the hash of the sources that they were made from. Run it from anywhere inside the
// module: go run ./agent/build. It needs gcc, and aarch64-linux-gnu-gcc for arm64's, which is left as it is without; the same gcc
// gives the same bytes.
//
// With -o FILE it writes the agent there and nothing else; headers in the folder of -overlay take the place of the
// repository's of the same path. So tests make agents that are broken on purpose (internal/testprog/mutant_test.go).
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"

	"github.com/hbtrace/hbtrace/agent/freshness"
)

type object struct {
	source, out string
	gcc, strip  string
	flags       []string
	optional    bool
}

// set is what is made, and committed, together.
type set struct {
	list    string // the Go file that lists its sources
	name    string // the variable in it
	pkg     string // its package; "": agent
	objects []object
}

// House style for C in the target, and what each flag is for:
// unwinding through our frames (exceptions, cancellation) needs asynchronous tables and no cleanup of ours;
// functions that start a walk force a frame of their own (HB_FRAME), the fast paths have none; one FDE a function,
// so that a personality covers all of it; the rest keeps the C library out.
var freestanding = []string{
	"-std=gnu11", "-O2", "-shared", "-nostdlib", "-ffreestanding", "-fno-strict-aliasing", "-fPIC", "-fvisibility=hidden", "-ftls-model=initial-exec",
	"-fno-stack-protector", "-U_FORTIFY_SOURCE", "-fomit-frame-pointer", "-fno-reorder-blocks-and-partition", "-fno-tree-loop-distribute-patterns", "-fasynchronous-unwind-tables", "-fno-exceptions",
	"-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow",
	"-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Wl,--build-id=sha1", "-Wl,--hash-style=gnu",
}

func agentFlags(more ...string) []string {
	return append(append([]string{}, freestanding...), append([]string{"-Wl,-soname,hbagent.so"}, more...)...)
}

// What is mapped into Go programs is an image of its own: no loader, no data, no SSE register, and no red zone below a stack
// pointer that is the runtime's.
var mapped = []string{
	"-std=gnu11", "-O2", "-fPIC", "-nostdlib", "-static", "-ffreestanding", "-fno-strict-aliasing", "-fvisibility=hidden", "-fno-stack-protector",
	"-U_FORTIFY_SOURCE", "-fomit-frame-pointer", "-mgeneral-regs-only", "-mno-red-zone", "-fcf-protection=none", "-fno-asynchronous-unwind-tables",
	"-fno-tree-loop-distribute-patterns", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow",
	"-Wl,-T,goruntime/blob.ld", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-N",
}

var sets = []set{
	{list: "goruntime/zsources.go", name: "madeAMD64", pkg: "goruntime", objects: []object{
		{source: "goruntime/blob.c", out: "goruntime/blob_linux_amd64.elf", gcc: "gcc", strip: "strip", flags: mapped},
	}},
	{list: "agent/zsources.go", name: "madeAMD64", objects: []object{
		{source: "agent/agent.c", out: "agent/hbagent_linux_amd64.so", gcc: "gcc", strip: "strip",
			flags: agentFlags("-Wl,--version-script=agent/agent.map")},
		{source: "agent/agent.c", out: "agent/hbattached_linux_amd64.so", gcc: "gcc", strip: "strip",
			flags: agentFlags("-Wl,--version-script=agent/agent.map", "-DHB_ATTACHED", "-Wno-unused-function", "-Wno-unused-const-variable")},
		{source: "agent/dormant.c", out: "agent/hbdormant_linux_amd64.so", gcc: "gcc", strip: "strip",
			flags: append(agentFlags("-mgeneral-regs-only", "-Wno-unused-function"), "-Wl,-soname,hbdormant.so")},
		{source: "agent/stub.c", out: "agent/stub_linux_386.so", gcc: "gcc", strip: "strip", optional: true,
			flags: []string{"-m32", "-march=i686", "-O2", "-shared", "-nostdlib", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror",
				"-fno-stack-protector", "-fcf-protection=none", "-Wl,-z,noexecstack", "-Wl,--build-id=sha1", "-Wl,-soname,hbagent.so"}},
	}},
	// Without outline atomics, which are functions of libgcc; so that loads and stores are exclusive ones, also where there are better.
	{list: "agent/zsources_aarch64.go", name: "madeARM64", objects: []object{
		{source: "agent/agent.c", out: "agent/hbagent_linux_arm64.so", gcc: "aarch64-linux-gnu-gcc", strip: "aarch64-linux-gnu-strip", optional: true,
			flags: agentFlags("-mno-outline-atomics", "-mbranch-protection=none")},
	}},
}

func main() {
	overlay := flag.String("overlay", "", "folder of headers to use instead of the repository's; needs -o")
	out := flag.String("o", "", "write the agent to this file, and nothing of the repository")
	flag.Parse()
	do := build
	if *out != "" || *overlay != "" {
		do = func() error { return buildOther(*overlay, *out) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "agent/build:", err)
		os.Exit(1)
	}
}

func build() error {
	root, err := freshness.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	for _, s := range sets {
		if err := s.build(root); err != nil {
			return err
		}
	}
	return nil
}

func (s set) build(root string) error {
	sources := map[string]bool{}
	made := map[string]string{}
	for _, o := range s.objects {
		if _, err := os.Stat(o.source); o.optional && errors.Is(err, os.ErrNotExist) {
			continue
		}
		deps, err := compile(o, root)
		if err != nil {
			if o.optional {
				fmt.Fprintf(os.Stderr, "agent/build: %s is left as it is: %v\n", o.out, err)
				continue
			}
			return err
		}
		for _, d := range deps {
			sources[d] = true
		}
		made[o.out] = ""
	}
	if len(made) == 0 {
		return nil
	}
	list := make([]string, 0, len(sources))
	for s := range sources {
		list = append(list, s)
	}
	sort.Strings(list)
	sum, err := freshness.Sources(root, list)
	if err != nil {
		return err
	}
	for out := range made {
		if made[out], err = freshness.File(filepath.Join(root, out)); err != nil {
			return err
		}
	}
	return s.write(list, sum, made)
}

// buildOther compiles the agent with other headers, to another place.
func buildOther(overlay, out string) error {
	root, err := freshness.Root()
	if err != nil {
		return err
	}
	if out == "" {
		return errors.New("-overlay without -o: name the file to write")
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if overlay, err = filepath.Abs(overlay); err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	args := []string{"-I" + overlay, "-I."}
	o := sets[1].objects[0]
	args = append(append(args, o.flags...), "-Wno-error", "-w", "-o", out, o.source)
	_, err = run(o.gcc, args...)
	return err
}

func run(gcc string, args ...string) ([]byte, error) {
	cmd := exec.Command(gcc, args...)
	// The locale, the time zone and the date must not reach the output.
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SOURCE_DATE_EPOCH=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", gcc, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// compile writes o.out, by a rename, and returns the repository's files that it was made from.
func compile(o object, root string) ([]string, error) {
	flags := append([]string{"-I.", "-ffile-prefix-map=" + root + "=."}, o.flags...)
	out, err := run(o.gcc, append(flags, "-MM", "-MT", "x", o.source)...)
	if err != nil {
		return nil, err
	}
	var deps []string
	for _, f := range strings.Fields(strings.ReplaceAll(string(out), "\\\n", " "))[1:] {
		deps = append(deps, filepath.ToSlash(filepath.Clean(f)))
	}
	for _, f := range flags {
		for _, option := range []string{"-Wl,--version-script=", "-Wl,-T,"} {
			if script, ok := strings.CutPrefix(f, option); ok {
				deps = append(deps, script)
			}
		}
	}
	tmp := o.out + ".new"
	defer os.Remove(tmp)
	if _, err := run(o.gcc, append(flags, "-o", tmp, o.source)...); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath(o.strip); err == nil {
		// The names of our own functions stay for debuggers; nothing else of .symtab matters at run time.
		if out, err := exec.Command(o.strip, "--strip-debug", tmp).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s %s: %w: %s", o.strip, tmp, err, out)
		}
	}
	if err := os.Chmod(tmp, 0o644); err != nil {
		return nil, err
	}
	return deps, os.Rename(tmp, o.out)
}

func (s set) write(list []string, sum string, made map[string]string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by agent/build; DO NOT EDIT.\n\npackage %s\n\n", cmp.Or(s.pkg, "agent"))
	fmt.Fprintf(&b, "var %s = made{\n\tsources: []string{\n", s.name)
	for _, s := range list {
		fmt.Fprintf(&b, "\t\t%q,\n", s)
	}
	fmt.Fprintf(&b, "\t},\n\tsourcesSHA256: %q,\n\tobjectsSHA256: map[string]string{\n", sum)
	outs := make([]string, 0, len(made))
	for o := range made {
		outs = append(outs, o)
	}
	sort.Strings(outs)
	for _, o := range outs {
		fmt.Fprintf(&b, "\t\t%q: %q,\n", o, made[o])
	}
	b.WriteString("\t},\n}\n")
	src, err := format.Source(b.Bytes())
	if err != nil {
		return err
	}
	return os.WriteFile(s.list, src, 0o644)
}
