package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A made is a transport that records how it was created.
type made struct {
	text   string
	remote grpcServer
	poll   restServer
	disk   fileSource
	closed *int
}

func (*made) Open(context.Context, *xds.Type) (client.Stream, error) {
	return nil, errors.New("closed")
}
func (m *made) Variant() xds.Variant {
	if m.remote.delta {
		return xds.Delta
	}
	return xds.SotW
}
func (m *made) Aggregated() bool { return !m.remote.perType }
func (m *made) String() string   { return m.text }
func (m *made) Close() error     { *m.closed++; return nil }

// A bench creates transports without a connection.
type bench struct{ made, closed int }

func (b *bench) options() Options {
	note := func(m *made) (client.Transport, error) {
		if strings.Contains(m.text, "impossible") {
			return nil, errors.New("no such address")
		}
		m.closed = &b.closed
		b.made++
		return m, nil
	}
	return Options{makers: &transportMakers{
		grpc: func(r grpcServer) (client.Transport, error) {
			var how []string
			if r.delta {
				how = append(how, "delta")
			}
			if r.perType {
				how = append(how, "per type")
			}
			how = append(how, r.credentials.Info().SecurityProtocol, r.target)
			return note(&made{text: strings.Join(how, " "), remote: r})
		},
		rest: func(p restServer) (client.Transport, error) {
			return note(&made{text: strings.TrimSuffix(fmt.Sprint("poll ", p.url, " ", p.every, " ", p.timeout, " ", p.unix), " "), poll: p})
		},
		file: func(d fileSource) (client.Transport, error) {
			return note(&made{text: strings.TrimSuffix("file "+d.path+" in "+d.watched, " in "), disk: d})
		},
	}}
}

// servers describes the servers of a configuration.
func servers(all []client.Server) string {
	var texts []string
	for _, s := range all {
		text := s.Transport.String()
		for feature, is := range map[string]bool{" ignores deletion": s.IgnoreDeletion, " trusted": s.Trusted, " fails": s.FailOnDataErrors, " transient": s.TimerIsTransient} {
			if is {
				text += feature
			}
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// refused expects an error with a text, and that all transports are closed.
func (b *bench) refused(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, want an error with %q", what, err, want)
	}
	if b.made != b.closed {
		t.Errorf("%s: %d transports were made, and %d closed", what, b.made, b.closed)
	}
}
