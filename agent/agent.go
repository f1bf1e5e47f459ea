// Package agent carries the part of hbtrace that runs inside recorded programs, and puts it where their loaders
// find it. The agent is C (agent.c and what it includes), compiled by agent/build and committed, so that no
// compiler is needed to build or install hbtrace; a test holds it against its sources. agent.go is what is
// carried, deliver.go how it is put on disk.
package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"runtime"
	"sort"
	"sync"
)

//go:generate go run ./build

// made tells of objects that `go run ./agent/build` compiled together.
type made struct {
	sources       []string          // the files that they were made from
	sourcesSHA256 string            // their hash when the objects were made
	objectsSHA256 map[string]string // of each object, by its path
}

// SessionVariable is the environment variable that names the session's socket: an abstract SEQPACKET address,
// without the leading NUL.
const SessionVariable = "HBTRACE_SESSION"

// AttachedName is the name in the directory of the agent for programs that run already. No loader is given it; who asks for the
// names of its functions finds them there.
const AttachedName = "attached.so"

// DormantName is the name in the directory of the dormant agent, which programs preload in order to be attached to later.
const DormantName = "dormant.so"

// preloadName is what LD_PRELOAD names in the directory. The loader of glibc replaces $PLATFORM by the CPU's,
// so that programs of each word size find an object that they can load and none complains; musl's takes it
// literally.
const preloadName = "agent-$PLATFORM.so"

// platforms are the values of AT_PLATFORM, and of glibc's own finer names for it, by the object that suits.
var platforms = map[string]map[string]string{
	"amd64": {
		"agent-x86_64.so":   "hbagent_linux_amd64.so",
		"agent-haswell.so":  "hbagent_linux_amd64.so",
		"agent-xeon_phi.so": "hbagent_linux_amd64.so",
		"agent-i686.so":     "stub_linux_386.so",
		preloadName:         "hbagent_linux_amd64.so",
		AttachedName:        "hbattached_linux_amd64.so", // for its names
		DormantName:         "hbdormant_linux_amd64.so",
	},
	"arm64": {
		"agent-aarch64.so": "hbagent_linux_arm64.so",
		preloadName:        "hbagent_linux_arm64.so",
	},
}

// files are the delivered files of this architecture by name; those whose object is optional and absent are
// left out.
func files() (map[string][]byte, error) {
	want, ok := platforms[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("hbtrace has no agent for linux/%s", runtime.GOARCH)
	}
	out := map[string][]byte{}
	for name, object := range want {
		b, err := objects.ReadFile(object)
		if err != nil {
			if object == "stub_linux_386.so" {
				continue // 32-bit children then print a loader error and run on
			}
			return nil, fmt.Errorf("this hbtrace was built without %s (make it with go run ./agent/build): %w", object, err)
		}
		out[name] = b
	}
	return out, nil
}

// Attached is the embedded agent that is mapped into programs that run already (package attach).
func Attached() ([]byte, error) {
	b, err := objects.ReadFile("hbattached_linux_" + runtime.GOARCH + ".so")
	if err != nil {
		return nil, fmt.Errorf("hbtrace has no agent for programs that run already on linux/%s", runtime.GOARCH)
	}
	return b, nil
}

// Dormant is the embedded object that programs preload in order to be attached to later.
func Dormant() ([]byte, error) {
	b, err := objects.ReadFile("hbdormant_linux_" + runtime.GOARCH + ".so")
	if err != nil {
		return nil, fmt.Errorf("hbtrace has no dormant agent on linux/%s", runtime.GOARCH)
	}
	return b, nil
}

var contentHash = sync.OnceValue(func() string {
	h := sha256.New()
	names, _ := fs.Glob(objects, "*.so")
	sort.Strings(names)
	for _, name := range names {
		b, _ := objects.ReadFile(name)
		fmt.Fprintf(h, "%s %d\n", name, len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
})

// Hash names the carried agent: the same for the same bytes.
func Hash() string { return contentHash() }

// Object is the embedded agent for this architecture.
func Object() ([]byte, error) {
	f, err := files()
	if err != nil {
		return nil, err
	}
	return f[preloadName], nil
}
