package server

import (
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	// The generated code with which the tests compare the table of types.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/extension/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"

	"github.com/chancery-xds/chancery/xds"
)

const prefix = "type.googleapis.com/"

func descriptor[D protoreflect.Descriptor](t *testing.T, name string) D {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d.(D)
}

// option returns the value of an extension in the options of a descriptor, or nil.
func option(d protoreflect.Descriptor, name string) (m protoreflect.Message) {
	d.Options().ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if string(f.FullName()) == name {
			m = v.Message()
		}
		return true
	})
	return m
}

func str(m protoreflect.Message, field string) string {
	return m.Get(m.Descriptor().Fields().ByName(protoreflect.Name(field))).String()
}

func TestTable(t *testing.T) {
	for _, typ := range xds.Types() {
		t.Run("TYP-1 "+typ.Short, func(t *testing.T) {
			msg := descriptor[protoreflect.MessageDescriptor](t, strings.TrimPrefix(typ.URL, prefix))
			if typ.Name != "" {
				if f := msg.Fields().ByName(protoreflect.Name(typ.Name)); f == nil || f.Kind() != protoreflect.StringKind {
					t.Errorf("%s has no string %q", msg.FullName(), typ.Name)
				}
			}
			svc := descriptor[protoreflect.ServiceDescriptor](t, typ.Service)
			if got := svc.ParentFile().Path(); got != typ.Proto {
				t.Errorf("service is declared in %q, the table says %q", got, typ.Proto)
			}
			if a := option(svc, "envoy.annotations.resource"); a == nil || prefix+str(a, "type") != typ.URL {
				t.Errorf("service is of %v, the table says %s", a, typ.URL)
			}
			// Each method is where it belongs, and none is missing.
			var want, got []string
			for i := range svc.Methods().Len() {
				m := svc.Methods().Get(i)
				column := typ.Fetch
				switch {
				case m.IsStreamingClient() && m.Input().Name() == "DeltaDiscoveryRequest":
					column = typ.Delta
				case m.IsStreamingClient():
					column = typ.Stream
				default:
					if h := option(m, "google.api.http"); h == nil || str(h, "post") != typ.REST {
						t.Errorf("REST path is %v, the table says %q", h, typ.REST)
					}
				}
				want, got = append(want, string(m.Name())), append(got, column)
			}
			if !slices.Equal(want, got) {
				t.Errorf("methods are %q, the table says %q", want, got)
			}
			if n := len(slices.DeleteFunc([]string{typ.Stream, typ.Delta, typ.Fetch}, func(s string) bool { return s == "" })); n != len(want) {
				t.Errorf("the table has %d methods, the service %d", n, len(want))
			}
		})
	}
	t.Run("TYP-3 the aggregated service", func(t *testing.T) {
		d := newTestServer().services()[0]
		svc := descriptor[protoreflect.ServiceDescriptor](t, d.ServiceName)
		if svc.ParentFile().Path() != d.Metadata {
			t.Errorf("declared in %s, not %s", svc.ParentFile().Path(), d.Metadata)
		}
		for _, m := range d.Streams {
			if g := svc.Methods().ByName(protoreflect.Name(m.StreamName)); g == nil || (g.Input().Name() == "DeltaDiscoveryRequest") != strings.HasPrefix(m.StreamName, "Delta") {
				t.Errorf("%s: %v", m.StreamName, g)
			}
		}
	})
}

func newTestServer() *Server { return New(newSource()) }

// bidi opens a stream by its method's name.
func bidi[Req, Res any](t *testing.T, conn *grpc.ClientConn, method string) *client[Req, Res] {
	t.Helper()
	s, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return &client[Req, Res]{t, &grpc.GenericClientStream[Req, Res]{ClientStream: s}}
}

// One test for each row of the table: the methods of its service, found by their descriptors.
func TestServices(t *testing.T) {
	w := serve(t)
	conn := w.dial(t)
	for _, typ := range xds.Types() {
		w.set(typ, res("a", "body of "+typ.Short))
	}
	// "The Any type of each resource is the response's type_url."
	check := func(t *testing.T, typ *xds.Type, url string, anys ...*anypb.Any) {
		t.Helper()
		if url != typ.URL || len(anys) != 1 || anys[0].GetTypeUrl() != typ.URL || string(anys[0].GetValue()) != "body of "+typ.Short {
			t.Errorf("got %s %v", url, anys)
		}
	}
	wrong := func(t *testing.T, err error) {
		t.Helper()
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), xds.TypeOf("x.y/Wrong").URL) {
			t.Errorf("got %v", err)
		}
	}
	for _, typ := range xds.Types() {
		svc := descriptor[protoreflect.ServiceDescriptor](t, typ.Service)
		for i := range svc.Methods().Len() {
			m := svc.Methods().Get(i)
			path := "/" + typ.Service + "/" + string(m.Name())
			t.Run("TYP-2 TYP-5 TYP-7 "+typ.Short+" "+string(m.Name()), func(t *testing.T) {
				for _, url := range []string{"", typ.URL, "x.y/Wrong"} {
					switch {
					case m.Input().Name() == "DeltaDiscoveryRequest":
						c := bidi[discovery.DeltaDiscoveryRequest, discovery.DeltaDiscoveryResponse](t, conn, path)
						c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: url, ResourceNamesSubscribe: []string{"a"}})
						if url == "x.y/Wrong" {
							wrong(t, c.end())
							continue
						}
						r := c.want()
						if len(r.Resources) != 1 || r.Resources[0].Name != "a" || r.Resources[0].Version == "" {
							t.Fatal(r)
						}
						check(t, typ, r.TypeUrl, r.Resources[0].Resource)
					case m.IsStreamingClient():
						c := bidi[discovery.DiscoveryRequest, discovery.DiscoveryResponse](t, conn, path)
						c.send(&discovery.DiscoveryRequest{TypeUrl: url, ResourceNames: []string{"a"}})
						if url == "x.y/Wrong" {
							wrong(t, c.end())
							continue
						}
						r := c.want()
						check(t, typ, r.TypeUrl, r.Resources...)
					default:
						var r discovery.DiscoveryResponse
						err := conn.Invoke(t.Context(), path, &discovery.DiscoveryRequest{TypeUrl: url, ResourceNames: []string{"a"}}, &r)
						if url == "x.y/Wrong" {
							wrong(t, err)
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						check(t, typ, r.TypeUrl, r.Resources...)
					}
				}
			})
		}
	}
}
