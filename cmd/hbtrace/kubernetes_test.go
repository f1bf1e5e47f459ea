package main

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPods asks a server that answers as the Kubernetes API reference has it (GET /api/v1/pods, PodList).
func TestPods(t *testing.T) {
	status := http.StatusOK
	items := []string{"0a1b2c3d-0000-1111-2222-333344445555"}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/api/v1/pods" || q.Get("labelSelector") != "app=web" || q.Get("fieldSelector") != "spec.nodeName=n1,status.phase=Running" ||
			r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("asked for %s with %q", r.URL, r.Header)
		}
		w.WriteHeader(status)
		list := map[string]any{"kind": "PodList", "apiVersion": "v1"}
		var pods []any
		for _, uid := range items {
			pods = append(pods, map[string]any{"metadata": map[string]any{"name": "web-1", "uid": uid}})
		}
		list["items"] = pods
		_ = json.NewEncoder(w).Encode(list)
	}))
	defer s.Close()
	dir := t.TempDir()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, content := range map[string][]byte{"token": []byte("secret\n"), "ca.crt": ca} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := cluster{server: s.Listener.Addr().String(), node: "n1", secret: dir}
	if got, err := c.pods(t.Context(), "app=web"); err != nil || !slices.Equal(got, items) {
		t.Errorf("%q, %v", got, err)
	}
	items = nil
	if _, err := c.pods(t.Context(), "app=web"); err == nil || !strings.Contains(err.Error(), "no such pod runs on node n1") {
		t.Errorf("no pods: %v", err)
	}
	status = http.StatusForbidden
	if _, err := c.pods(t.Context(), "app=web"); err == nil || !strings.Contains(err.Error(), "may not list pods") {
		t.Errorf("forbidden: %v", err)
	}
	c.secret = t.TempDir()
	if _, err := c.pods(t.Context(), "app=web"); err == nil || !strings.Contains(err.Error(), "token") {
		t.Errorf("no token: %v", err)
	}
}

func TestClusterOf(t *testing.T) {
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "NODE_NAME": "n1"}
	get := func(name string) string { return env[name] }
	if c, err := clusterOf(get); err != nil || c.server != "[fd00::1]:443" || c.node != "n1" {
		t.Errorf("%+v, %v", c, err)
	}
	delete(env, "NODE_NAME")
	if _, err := clusterOf(get); err == nil || !strings.Contains(err.Error(), "NODE_NAME") {
		t.Error(err)
	}
	delete(env, "KUBERNETES_SERVICE_HOST")
	if _, err := clusterOf(get); err == nil || !strings.Contains(err.Error(), "inside a pod") {
		t.Error(err)
	}
}
