// Pods by their labels, asked of the Kubernetes API server as a pod may: for attach on a node.

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// cluster is how a pod reaches the API server: kubernetes.io/docs/tasks/run-application/access-api-from-pod.
type cluster struct {
	server string // host:port
	node   string // pods of this node only
	secret string // directory with the service account's token and ca.crt
}

// clusterOf is the cluster that this process runs in, from its environment.
func clusterOf(env func(string) string) (cluster, error) {
	host, port, node := env("KUBERNETES_SERVICE_HOST"), env("KUBERNETES_SERVICE_PORT"), env("NODE_NAME")
	if host == "" || port == "" {
		return cluster{}, errors.New("--selector works inside a pod: KUBERNETES_SERVICE_HOST is not set")
	}
	if node == "" {
		return cluster{}, errors.New("--selector needs NODE_NAME in the environment: set it from the field spec.nodeName")
	}
	return cluster{net.JoinHostPort(host, port), node, "/var/run/secrets/kubernetes.io/serviceaccount"}, nil
}

// pods are the uids of the running pods on the node that have the labels of a selector, as kubectl -l has it.
func (c cluster) pods(ctx context.Context, selector string) (uids []string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pods of %s: %w", selector, err)
		}
	}()
	token, err := os.ReadFile(filepath.Join(c.secret, "token"))
	if err != nil {
		return nil, err
	}
	pem, err := os.ReadFile(filepath.Join(c.secret, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("ca.crt has no certificate")
	}
	ask := url.URL{Scheme: "https", Host: c.server, Path: "/api/v1/pods", RawQuery: url.Values{
		"labelSelector": {selector}, "fieldSelector": {"spec.nodeName=" + c.node + ",status.phase=Running"},
	}.Encode()}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ask.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden, http.StatusUnauthorized:
		return nil, errors.New("the service account may not list pods: see docs/kubernetes.md for its role")
	default:
		return nil, fmt.Errorf("the API server says %s", resp.Status)
	}
	var list struct {
		Items []struct{ Metadata struct{ UID string } }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 64<<20)).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading the API server's answer: %w", err)
	}
	for _, p := range list.Items {
		uids = append(uids, p.Metadata.UID)
	}
	if len(uids) == 0 {
		return nil, fmt.Errorf("no such pod runs on node %s", c.node)
	}
	return uids, nil
}
