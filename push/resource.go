// Who sends: resource attributes by OpenTelemetry's semantic conventions.

package push

import (
	"bytes"
	"cmp"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/hbtrace/hbtrace/trace"
)

// Resource are the attributes of all that one program sends. Those of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME in
// the recorder's environment come before those that are found; service, from a flag, before all.
func Resource(service string, m *trace.Meta, pid int, buildID string) map[string]string {
	r := map[string]string{
		"host.name": m.Host, "host.arch": m.Arch, "os.type": "linux", "os.description": m.Kernel,
		"process.command_line": strings.Join(m.Command, " "), "process.executable.build_id.gnu": buildID,
		"telemetry.sdk.name": "hbtrace", "telemetry.sdk.version": m.Version,
	}
	if pid > 0 {
		r["process.pid"] = strconv.Itoa(pid)
	}
	if len(m.Command) > 0 {
		r["process.executable.name"] = filepath.Base(m.Command[0])
	}
	if cgroup, err := os.ReadFile("/proc/" + cmp.Or(positive(pid), "self") + "/cgroup"); err == nil {
		container(r, cgroup)
	}
	// The downward API's usual names.
	for name, variable := range map[string]string{
		"k8s.pod.name": "POD_NAME", "k8s.namespace.name": "POD_NAMESPACE", "k8s.node.name": "NODE_NAME", "k8s.pod.uid": "POD_UID",
	} {
		if v := cmp.Or(os.Getenv("K8S_"+variable), os.Getenv(variable)); v != "" {
			r[name] = v
		}
	}
	for _, pair := range strings.Split(os.Getenv("OTEL_RESOURCE_ATTRIBUTES"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			if value, err := url.PathUnescape(strings.TrimSpace(v)); err == nil {
				r[strings.TrimSpace(k)] = value
			}
		}
	}
	r["service.name"] = cmp.Or(service, os.Getenv("OTEL_SERVICE_NAME"), r["service.name"], r["process.executable.name"], "unknown_service")
	for k, v := range r {
		if v == "" {
			delete(r, k)
		} else {
			r[k] = strings.ToValidUTF8(v, "\uFFFD")
		}
	}
	return r
}

func positive(pid int) string {
	if pid <= 0 {
		return ""
	}
	return strconv.Itoa(pid)
}

var (
	containerID = regexp.MustCompile(`(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:$|/)`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})`)
)

// container finds the ids of container and pod in a cgroup path, as Docker, containerd and CRI-O write them.
func container(r map[string]string, cgroup []byte) {
	for line := range bytes.Lines(cgroup) {
		path := strings.TrimSpace(string(line))
		if m := containerID.FindStringSubmatch(path); m != nil {
			r["container.id"] = m[1]
		}
		if m := podUID.FindStringSubmatch(path); m != nil {
			r["k8s.pod.uid"] = strings.ReplaceAll(m[1], "_", "-")
		}
	}
}
