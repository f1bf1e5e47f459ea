// Where profiles go: an address, headers and TLS, from a URL and OpenTelemetry's environment variables.

package push

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Protocol is how profiles are sent.
type Protocol uint8

// The protocols.
const (
	OTLP      Protocol = iota + 1 // OpenTelemetry over gRPC
	OTLPHTTP                      // OpenTelemetry over HTTP, protobuf
	Pyroscope                     // Pyroscope's push.v1.PusherService
)

// Target is a receiver.
type Target struct {
	Protocol Protocol
	Host     string // host:port
	Path     string // prefix of paths, without a final slash
	Secure   bool
	TLS      *tls.Config       // where Secure
	Headers  map[string]string // of each request
}

// schemes are the forms of a target, with the port that is meant where none is named.
var schemes = map[string]struct {
	protocol Protocol
	secure   bool
	port     string
}{
	"otlp": {OTLP, false, "4317"}, "otlps": {OTLP, true, "4317"},
	"otlp+http": {OTLPHTTP, false, "4318"}, "otlp+https": {OTLPHTTP, true, "4318"},
	"pyroscope": {Pyroscope, false, "4040"}, "pyroscope+http": {Pyroscope, false, "4040"}, "pyroscope+https": {Pyroscope, true, "443"},
}

// ParseTarget reads a URL. Headers and certificates come from OTEL_EXPORTER_OTLP_HEADERS, …_CERTIFICATE,
// …_CLIENT_CERTIFICATE and …_CLIENT_KEY, as the OpenTelemetry specification has them; user and password of the URL
// become basic authentication.
func ParseTarget(text string) (*Target, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("push %s: %w", text, errors.Unwrap(err))
	}
	s, ok := schemes[u.Scheme]
	if !ok || u.Hostname() == "" {
		return nil, fmt.Errorf("push %s: use otlp://HOST:4317, otlp+http://HOST:4318 or pyroscope://HOST:4040 (otlps, otlp+https and pyroscope+https with TLS)", text)
	}
	t := &Target{
		Protocol: s.protocol, Secure: s.secure, Host: u.Hostname() + ":" + cmp.Or(u.Port(), s.port),
		Path: strings.TrimSuffix(u.Path, "/"), Headers: map[string]string{},
	}
	if strings.Contains(u.Hostname(), ":") {
		t.Host = "[" + u.Hostname() + "]:" + cmp.Or(u.Port(), s.port)
	}
	if t.Protocol == OTLP && t.Path != "" {
		return nil, fmt.Errorf("push %s: gRPC has no path: leave out %s, or use otlp+http", text, t.Path)
	}
	if t.Protocol != Pyroscope {
		if err := t.headers(os.Getenv("OTEL_EXPORTER_OTLP_HEADERS")); err != nil {
			return nil, err
		}
	}
	if u.User != nil {
		password, _ := u.User.Password()
		t.Headers["authorization"] = "Basic " + basic(u.User.Username(), password)
	}
	if t.Secure {
		if t.TLS, err = tlsConfig(); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// headers reads key=value,key=value with percent-encoded values.
func (t *Target) headers(list string) error {
	for _, pair := range strings.Split(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		k, v, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(v))
		if !ok || err != nil || strings.TrimSpace(k) == "" {
			return errors.New("push: OTEL_EXPORTER_OTLP_HEADERS is not a list of key=value,key=value")
		}
		t.Headers[strings.ToLower(strings.TrimSpace(k))] = value
	}
	return nil
}

// tlsConfig trusts the system's certificates, or the one that the environment names.
func tlsConfig() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := os.Getenv("OTEL_EXPORTER_OTLP_CERTIFICATE"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("push: OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("push: OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate", path)
		}
	}
	cert, key := os.Getenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"), os.Getenv("OTEL_EXPORTER_OTLP_CLIENT_KEY")
	if cert != "" && key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("push: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
