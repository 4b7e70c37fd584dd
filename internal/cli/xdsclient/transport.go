package xdsclient

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/client/rest"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// Transport returns the transport to the server: gRPC, or polls over REST.
func (s *Server) Transport(types *envoy.Types) (client.Transport, error) {
	conf, err := s.tls(slog.Default())
	if err != nil {
		return nil, err
	}
	if s.rest {
		return s.restTransport(conf, types)
	}
	o := client.GRPCOptions{Credentials: insecure.NewCredentials(), Delta: s.Delta, PerType: s.perType, ResourceName: nameReader(types), MaxMessage: s.Response.Bytes, Limit: s.Response, DialOptions: []grpc.DialOption{grpc.WithNoProxy()}}
	if conf != nil {
		o.Credentials = credentials.NewTLS(conf)
	}
	t, err := client.GRPC(s.Text, o)
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	return t, nil
}

// restTransport returns the transport that polls the server over REST. It uses no proxy.
func (s *Server) restTransport(conf *tls.Config, types *envoy.Types) (client.Transport, error) {
	scheme := "http://"
	if conf != nil {
		scheme = "https://"
	}
	cli.SilenceHTTPLog()
	web := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute}
	t, err := rest.New(scheme+s.at.String(), rest.Options{Client: &http.Client{Transport: web}, Resolver: types, Refresh: refresh, ResourceName: nameReader(types), MaxMessage: s.Response.Bytes, Limit: s.Response})
	if err != nil {
		return nil, cli.Fail(err, "")
	}
	return t, nil
}

// refresh is the time between two polls of watch.
const refresh = time.Second

// nameReader returns a function that reads the name of a resource in its body. It is for types that the
// package xds does not know, such as a type from --proto-set. The function reads the field "name",
// because nearly all messages with a name have this field.
func nameReader(types *envoy.Types) func(*xds.Type, []byte) string {
	return func(t *xds.Type, body []byte) string {
		m, err := Unmarshal(types, &xds.Resource{Type: t, Body: body})
		if err != nil {
			return ""
		}
		f := m.ProtoReflect().Descriptor().Fields().ByName("name")
		if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
			return ""
		}
		return m.ProtoReflect().Get(f).String()
	}
}
