package client_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// SotW and delta judge a resource alike (CLI-15): the same NACK and the same events, whatever is wrong with the resource.
func TestBothVariantsJudgeAlike(t *testing.T) {
	pack := func(url string, body []byte) *anypb.Any { return &anypb.Any{TypeUrl: url, Value: body} }
	named := func(name, more string) *anypb.Any {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
		return pack(xds.Endpoint.URL, protowire.AppendString(protowire.AppendTag(b, 1000, protowire.BytesType), more))
	}
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	const wrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"
	a := func(version string) *discovery.Resource {
		return &discovery.Resource{Name: "a", Version: version, Resource: named("a", version)}
	}
	with := func(r *discovery.Resource, change func(*discovery.Resource)) []*discovery.Resource {
		change(r)
		return []*discovery.Resource{r}
	}
	for _, c := range []struct {
		name      string
		resources []*discovery.Resource
		nack      string // a part of it; "": ACK
	}{
		{"a good resource", []*discovery.Resource{a("1")}, ""},
		{"without a version", []*discovery.Resource{a("")}, ""},
		{"with its own name as an alias", with(a("1"), func(r *discovery.Resource) { r.Aliases = []string{"a", "", "*"} }), ""},
		{"twice, with different bodies", []*discovery.Resource{a("1"), a("2")}, "a: duplicate resource"},
		{"twice, with equal bodies", []*discovery.Resource{a("1"), a("1")}, "a: duplicate resource"},
		{"another type in the Any", with(a("1"), func(r *discovery.Resource) { r.Resource.TypeUrl = xds.Cluster.URL }), "is a " + xds.Cluster.URL},
		{"an unknown type in the Any", with(a("1"), func(r *discovery.Resource) { r.Resource.TypeUrl = "x/Y" }), "is a x/Y"},
		{"an empty Any", with(a("1"), func(r *discovery.Resource) { r.Resource = &anypb.Any{} }), "has no type"},
		{"an empty message", with(a("1"), func(r *discovery.Resource) { r.Resource.Value = nil }), "has no name in its message"},
		{"a message without a name", with(a("1"), func(r *discovery.Resource) { r.Resource = named("", "1") }), "has no name in its message"},
		{"a message with another name", with(a("1"), func(r *discovery.Resource) { r.Resource = named("b", "1") }), `the name in the message is "b"`},
		{"a message with the name of an alias", with(a("1"), func(r *discovery.Resource) { r.Resource, r.Aliases = named("b", "1"), []string{"b"} }), `the name in the message is "b"`},
		{"a truncated message", with(a("1"), func(r *discovery.Resource) { r.Resource.Value = []byte{10, 9, 'a'} }), "unexpected EOF"},
		{"a Resource in a Resource", with(a("1"), func(r *discovery.Resource) {
			r.Resource = pack(wrapper, marshal(&discovery.Resource{Name: "a", Resource: r.Resource}))
		}), "is a " + wrapper},
		{"a negative TTL", with(a("1"), func(r *discovery.Resource) { r.Ttl = durationpb.New(-time.Second) }), "invalid TTL"},
		{"a TTL with invalid nanoseconds", with(a("1"), func(r *discovery.Resource) { r.Ttl = &durationpb.Duration{Nanos: 2e9} }), "invalid TTL"},
		{"the wildcard's name", []*discovery.Resource{{Name: "*", Version: "1", Resource: named("*", "1")}}, `the name "*" is reserved`},
		{"a collection's name", []*discovery.Resource{{Name: "xdstp://a/t/*", Version: "1", Resource: named("xdstp://a/t/*", "1")}}, "has the name of a collection"},
		{"neither name nor body", []*discovery.Resource{{Version: "1"}}, "has no name"},
		{"a heartbeat of a name that is not held", []*discovery.Resource{{Name: "a", Version: "1", Ttl: durationpb.New(time.Second)}}, ""},
		{"a version without a body", []*discovery.Resource{{Name: "a", Version: "1"}}, ""},
		{"a bad one and a good one", []*discovery.Resource{{Name: "b", Version: "1", Resource: named("", "1")}, a("1")}, "has no name in its message"},
	} {
		t.Run("CLI-15 "+c.name, func(t *testing.T) {
			judge := func(v xds.Variant) (nack, events string) {
				var m proto.Message = &discovery.DeltaDiscoveryResponse{TypeUrl: xds.Endpoint.URL, Resources: c.resources}
				if v == xds.SotW {
					r := &discovery.DiscoveryResponse{TypeUrl: xds.Endpoint.URL, VersionInfo: "1"}
					for _, w := range c.resources {
						r.Resources = append(r.Resources, pack(wrapper, marshal(w)))
					}
					m = r
				}
				r, err := wire.DecodeResponse(v, marshal(m), wire.ResponseOptions{})
				if err != nil {
					t.Fatal(err)
				}
				core := protocol.NewClient(v, protocol.ClientOptions{})
				core.Connected(nil)
				core.Subscribe(xds.Endpoint, "a", "b", "*")
				for range core.Requests() {
				}
				_ = core.Receive(r)
				for req := range core.Requests() {
					if req.Error != nil {
						nack = req.Error.Message
					}
				}
				for ev := range core.Events() {
					events += fmt.Sprintf("%v %s %v\n", ev.Kind, ev.Name, ev.Err)
				}
				return nack, events
			}
			nack, events := judge(xds.SotW)
			if (nack == "") != (c.nack == "") || !strings.Contains(nack, c.nack) {
				t.Errorf("NACK %q, want %q", nack, c.nack)
			}
			if n, e := judge(xds.Delta); n != nack || e != events {
				t.Errorf("delta:\n%s\n%s\nSotW:\n%s\n%s", n, e, nack, events)
			}
		})
	}
}
