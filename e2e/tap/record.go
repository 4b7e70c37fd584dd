package tap

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// A Kind says what a record is of.
type Kind string

const (
	Open     Kind = "OPEN"
	Request  Kind = "C>"
	Response Kind = "<S"
	Close    Kind = "CLOSE"
	Mark     Kind = "--"
)

// A Record is one thing that happened between client and server.
type Record struct {
	At     time.Duration // since the tap was made
	Stream int           // counted from 1 in the order they were opened; 0 for a mark
	Kind   Kind
	Text   string // of a mark; the method of an open; the status of a close
	Size   int    // of the message in bytes
	Delta  bool   // the method's variant

	Type    string // "CDS"; the message's name where there is no short one
	Version string // version_info or system_version_info
	Nonce   string

	// Of a request.
	Names       []string   // SotW
	Subscribe   []string   // delta
	Unsubscribe []string   // delta
	Initial     []string   // delta: name@version, sorted
	Node        *core.Node // nil if it has none
	NACK        string     // the message of error_detail
	Code        codes.Code // of error_detail
	nacked      bool

	// Of a response.
	Resources []Resource
	Removed   []string
}

// A Resource is one resource of a response.
type Resource struct {
	Name    string
	Version string // delta
	URL     string
	Sum     string // hash of the body; "" if there is none

	Clusters []string // that a route configuration leads to
}

// IsNACK reports whether the record is a request that rejects a response.
func (r Record) IsNACK() bool { return r.nacked }

// Has reports whether a response carries a resource of that name.
func (r Record) Has(name string) bool {
	return slices.ContainsFunc(r.Resources, func(x Resource) bool { return x.Name == name })
}

// Content is what a response says, without nonce and order: two with the same
// content tell the client the same.
func (r Record) Content() string {
	var s []string
	for _, x := range r.Resources {
		s = append(s, "+"+x.Name+"@"+x.Sum)
	}
	for _, x := range r.Removed {
		s = append(s, "-"+x)
	}
	slices.Sort(s)
	return strings.Join(s, " ")
}

// String prints the record as one line. An absent field is an empty one.
func (r Record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3f ", r.At.Seconds())
	if r.Kind == Mark {
		return b.String() + "-- " + r.Text
	}
	fmt.Fprintf(&b, "#%d ", r.Stream)
	if r.Kind == Open || r.Kind == Close {
		return b.String() + string(r.Kind) + " " + r.Text
	}
	version := "version_info"
	if r.Delta {
		version = "system_version_info"
	}
	if r.Kind == Response {
		b.WriteString("   ")
	}
	fmt.Fprintf(&b, "%s %s", r.Kind, r.Type)
	if r.nacked {
		b.WriteString(" NACK")
	}
	list := func(field string, names []string) {
		if len(names) > 0 {
			fmt.Fprintf(&b, " %s=[%s]", field, strings.Join(quoted(names), ", "))
		}
	}
	list("names", r.Names)
	list("names_subscribe", r.Subscribe)
	list("names_unsubscribe", r.Unsubscribe)
	list("initial_resource_versions", r.Initial)
	if r.Version != "" {
		fmt.Fprintf(&b, " %s=%q", version, r.Version)
	}
	if r.Nonce != "" {
		field := "nonce"
		if r.Kind == Request {
			field = "response_nonce"
		}
		fmt.Fprintf(&b, " %s=%q", field, r.Nonce)
	}
	var names []string
	for _, x := range r.Resources {
		name := x.Name
		if x.Version != "" {
			name += "@" + x.Version
		}
		if x.Sum == "" {
			name += " (no body)"
		}
		names = append(names, name)
	}
	list("resources", names)
	list("removed", r.Removed)
	if r.Node != nil {
		b.WriteString(" +node")
	}
	if r.nacked {
		msg := r.NACK
		if len(msg) > 200 {
			msg = msg[:200] + "…"
		}
		fmt.Fprintf(&b, " code=%d", r.Code)
		if msg != "" {
			fmt.Fprintf(&b, " err=%q", msg)
		}
	}
	return b.String()
}

func quoted(names []string) []string {
	var q []string
	for i, n := range names {
		if i == 20 {
			return append(q, fmt.Sprintf("… %d more", len(names)-i))
		}
		q = append(q, strconv.Quote(n))
	}
	return q
}

// decode reads a message as the variant that its method speaks. A message that
// cannot be read is recorded as such and passed on all the same.
func decode(method string, kind Kind, b []byte) Record {
	delta := strings.Contains(method[strings.LastIndex(method, "/")+1:], "Delta")
	r := Record{Kind: kind, Size: len(b), Delta: delta}
	var err error
	switch {
	case kind == Request && !delta:
		var m discovery.DiscoveryRequest
		err = proto.Unmarshal(b, &m)
		r.Type, r.Version, r.Nonce, r.Names = short(m.GetTypeUrl()), m.GetVersionInfo(), m.GetResponseNonce(), m.GetResourceNames()
		r.refusal(m.GetErrorDetail())
		r.Node = m.GetNode()
	case kind == Request:
		var m discovery.DeltaDiscoveryRequest
		err = proto.Unmarshal(b, &m)
		r.Type, r.Nonce = short(m.GetTypeUrl()), m.GetResponseNonce()
		r.Subscribe, r.Unsubscribe = m.GetResourceNamesSubscribe(), m.GetResourceNamesUnsubscribe()
		for name, version := range m.GetInitialResourceVersions() {
			r.Initial = append(r.Initial, name+"@"+version)
		}
		slices.Sort(r.Initial)
		r.refusal(m.GetErrorDetail())
		r.Node = m.GetNode()
	case !delta:
		var m discovery.DiscoveryResponse
		err = proto.Unmarshal(b, &m)
		r.Type, r.Version, r.Nonce = short(m.GetTypeUrl()), m.GetVersionInfo(), m.GetNonce()
		for _, a := range m.GetResources() {
			x := Resource{URL: a.GetTypeUrl(), Name: firstString(a.GetValue()), Sum: sum(a.GetValue()), Clusters: clusters(a)}
			var w discovery.Resource
			if strings.HasSuffix(x.URL, "/envoy.service.discovery.v3.Resource") && proto.Unmarshal(a.GetValue(), &w) == nil {
				x = wrapped(&w)
			}
			r.Resources = append(r.Resources, x)
		}
	default:
		var m discovery.DeltaDiscoveryResponse
		err = proto.Unmarshal(b, &m)
		r.Type, r.Version, r.Nonce, r.Removed = short(m.GetTypeUrl()), m.GetSystemVersionInfo(), m.GetNonce(), m.GetRemovedResources()
		for _, w := range m.GetResources() {
			r.Resources = append(r.Resources, wrapped(w))
		}
	}
	if err != nil {
		r.Type = fmt.Sprintf("UNREADABLE %d bytes: %v", len(b), err)
	}
	return r
}

func (r *Record) refusal(s *status.Status) {
	r.nacked, r.NACK, r.Code = s != nil, s.GetMessage(), codes.Code(uint32(s.GetCode()))
}

func wrapped(w *discovery.Resource) Resource {
	x := Resource{Name: w.GetName(), Version: w.GetVersion(), URL: w.GetResource().GetTypeUrl()}
	if w.GetResource() != nil {
		x.Sum, x.Clusters = sum(w.GetResource().GetValue()), clusters(w.GetResource())
	}
	return x
}

// clusters returns the clusters that a route configuration leads to.
func clusters(a *anypb.Any) (names []string) {
	var c route.RouteConfiguration
	if !a.MessageIs(&c) || a.UnmarshalTo(&c) != nil {
		return nil
	}
	for _, h := range c.GetVirtualHosts() {
		for _, r := range h.GetRoutes() {
			if name := r.GetRoute().GetCluster(); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:6])
}

// firstString returns field 1 of a message, which is the name in every
// resource type.
func firstString(b []byte) string {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			break
		}
		if num == 1 && typ == protowire.BytesType {
			s, _ := protowire.ConsumeString(b[n:])
			return s
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			break
		}
		b = b[n+m:]
	}
	return "?"
}

var urls = map[string]string{
	"CDS":  "type.googleapis.com/envoy.config.cluster.v3.Cluster",
	"EDS":  "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
	"LEDS": "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
	"LDS":  "type.googleapis.com/envoy.config.listener.v3.Listener",
	"RDS":  "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
	"SRDS": "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
	"VHDS": "type.googleapis.com/envoy.config.route.v3.VirtualHost",
	"SDS":  "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
	"RTDS": "type.googleapis.com/envoy.service.runtime.v3.Runtime",
	"ECDS": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
}

func short(url string) string {
	for s, u := range urls {
		if u == url {
			return s
		}
	}
	return url
}
