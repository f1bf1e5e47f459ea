// One request: over gRPC, or over HTTP.

package push

import (
	"bytes"
	"cmp"
	zip "compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Kinds of requests, and names of spooled files' ends.
const (
	kindProfiles = "profiles"
	kindMetrics  = "metrics"
)

// refused is an answer that the same request would get again.
type refused struct{ error }

// busy is an answer that asks for a later try.
type busy struct {
	error
	after time.Duration // 0: not said
}

// sender sends requests to one target.
type sender struct {
	t    *Target
	http *http.Client
	grpc *grpc.ClientConn
}

func newSender(t *Target) (*sender, error) {
	s := &sender{t: t}
	if t.Protocol != OTLP {
		tr := http.DefaultTransport.(*http.Transport).Clone()
		tr.TLSClientConfig = t.TLS
		s.http = &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		return s, nil
	}
	cred := insecure.NewCredentials()
	if t.Secure {
		cred = credentials.NewTLS(t.TLS.Clone())
	}
	c, err := grpc.NewClient("dns:///"+t.Host, grpc.WithTransportCredentials(cred), grpc.WithUserAgent("hbtrace"))
	if err != nil {
		return nil, fmt.Errorf("push to %s: %w", t.Host, err)
	}
	s.grpc = c
	return s, nil
}

func (s *sender) close() {
	if s.grpc != nil {
		s.grpc.Close() // it only sent
	} else {
		s.http.CloseIdleConnections()
	}
}

// raw is a codec for messages that are encoded already.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

var methods = map[string]string{
	kindProfiles: "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
	kindMetrics:  "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}

var paths = map[string]string{kindProfiles: "/v1development/profiles", kindMetrics: "/v1/metrics"}

// send sends one request. Its error is a refused, a busy, or one of the connection.
func (s *sender) send(ctx context.Context, kind string, body []byte) error {
	if s.t.Protocol != OTLP {
		return s.post(ctx, kind, body)
	}
	for k, v := range s.t.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, k, v)
	}
	var answer []byte
	err := s.grpc.Invoke(ctx, methods[kind], &body, &answer, grpc.ForceCodec(raw{}), grpc.UseCompressor(gzip.Name))
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented, codes.NotFound, codes.Internal,
		codes.FailedPrecondition, codes.OutOfRange:
		return refused{s.about(kind, errors.New(status.Convert(err).Message()))}
	case codes.ResourceExhausted:
		return busy{s.about(kind, errors.New(status.Convert(err).Message())), 0}
	}
	return s.about(kind, errors.New(status.Convert(err).Message()))
}

func (s *sender) post(ctx context.Context, kind string, body []byte) error {
	path, content := paths[kind], "application/x-protobuf"
	if s.t.Protocol == Pyroscope {
		path, content = "/push.v1.PusherService/Push", "application/proto" // a unary call of the Connect protocol
	}
	scheme := "http"
	if s.t.Secure {
		scheme = "https"
	}
	var packed bytes.Buffer
	z := zip.NewWriter(&packed)
	z.Write(body) // into memory
	z.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, scheme+"://"+s.t.Host+s.t.Path+path, &packed)
	if err != nil {
		return refused{s.about(kind, err)}
	}
	req.Header.Set("Content-Type", content)
	req.Header.Set("Content-Encoding", "gzip")
	req.Header.Set("User-Agent", "hbtrace")
	if s.t.Protocol == Pyroscope {
		req.Header.Set("Connect-Protocol-Version", "1")
	}
	for k, v := range s.t.Headers {
		req.Header.Set(k, v)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return s.about(kind, plain(err))
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // for the message only
	switch {
	case resp.StatusCode/100 == 2:
		return nil
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode/100 == 5:
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // not said, or a date
		return busy{s.about(kind, errors.New(resp.Status)), time.Duration(max(0, after)) * time.Second}
	}
	return refused{s.about(kind, fmt.Errorf("%s%s: %s%s", s.t.Path, path, resp.Status, quoted(text)))}
}

// plain is an error without the request that http puts in front of it.
func plain(err error) error {
	var wrong *tls.CertificateVerificationError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%w: name the authority's certificate in OTEL_EXPORTER_OTLP_CERTIFICATE", wrong.Err)
	}
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}

func quoted(text []byte) string {
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(text[:min(len(text), 200)]), "?"))
	if line = strings.TrimSpace(line); line == "" {
		return ""
	}
	return ": " + line
}

func (s *sender) about(kind string, err error) error {
	return fmt.Errorf("push of %s to %s: %w", kind, cmp.Or(s.t.Host, "?"), err)
}

func basic(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}
