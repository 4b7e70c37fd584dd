package k8s

import (
	"fmt"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// slice returns a slice of service b: ports as NAME:NUMBER, endpoints as ADDRESS[@ZONE][!STATE]. STATE
// has the letters of the true conditions: r ready, s serving, t terminating. Without STATE the
// conditions are unset.
func slice(name, ports string, all ...string) *discovery.EndpointSlice {
	s := &discovery.EndpointSlice{ObjectMeta: meta.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discovery.LabelServiceName: "b"}}, AddressType: discovery.AddressTypeIPv4}
	for p := range strings.FieldsSeq(ports) {
		var port discovery.EndpointPort
		label, number, _ := strings.Cut(p, ":")
		var n int32
		_, _ = fmt.Sscan(number, &n)
		port.Port, port.Name = &n, &label
		if label == "udp" {
			udp := core.ProtocolUDP
			port.Protocol = &udp
		}
		s.Ports = append(s.Ports, port)
	}
	for _, text := range all {
		at, state, told := strings.Cut(text, "!")
		address, zone, zoned := strings.Cut(at, "@")
		e := discovery.Endpoint{Addresses: []string{address}}
		if zoned {
			e.Zone = &zone
		}
		if told {
			r, sv, tm := strings.Contains(state, "r"), strings.Contains(state, "s"), strings.Contains(state, "t")
			e.Conditions = discovery.EndpointConditions{Ready: &r, Serving: &sv, Terminating: &tm}
		}
		if strings.Contains(address, ":") {
			s.AddressType = discovery.AddressTypeIPv6
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// shown returns endpoints as text.
func shown(all []api.Endpoint) string {
	var out []string
	for _, e := range all {
		s := fmt.Sprintf("%s:%d", e.Address, e.Port)
		if e.Locality != nil {
			s += "@" + e.Locality.Region + "/" + e.Locality.Zone
		}
		if e.Health != healthy {
			s += " " + e.Health
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func TestEndpointsOf(t *testing.T) {
	type all = []*discovery.EndpointSlice
	two := slice("two", "http:80", "10.0.0.1")
	two.Endpoints[0].Addresses = append(two.Endpoints[0].Addresses, "10.0.0.9")
	none := slice("none", "http:80", "10.0.0.1")
	none.Ports[0].Port = nil
	host := slice("host", "http:80", "b.example")
	host.AddressType = discovery.AddressTypeFQDN
	unknown := slice("unknown", "http:80", "10.0.0.1!x", "10.0.0.2!t")
	unknown.Endpoints[0].Conditions.Ready, unknown.Endpoints[0].Conditions.Serving = nil, nil
	unknown.Endpoints[1].Conditions.Serving = nil
	for _, c := range []struct {
		what, port, want string
		slices           all
		families         Families
	}{
		{"two slices", "http", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.10:80", all{slice("s", "http:80", "10.0.0.10", "10.0.0.2"), slice("t", "http:80", "10.0.0.1")}, ""},
		{"one endpoint in two", "http", "10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80 DRAINING", all{slice("s", "http:80", "10.0.0.1!st", "10.0.0.2!rs", "10.0.0.3!st"), slice("t", "http:80", "10.0.0.1!rs", "10.0.0.2!st", "10.0.0.3!")}, ""},
		{"conditions", "http", "10.0.0.1:80, 10.0.0.2:80 DRAINING, 10.0.0.6:80", all{slice("s", "http:80", "10.0.0.1!rs", "10.0.0.2!st", "10.0.0.3!s", "10.0.0.4!t", "10.0.0.5!", "10.0.0.6!rst")}, ""},
		{"nothing said of conditions", "http", "10.0.0.1:80", all{unknown}, ""},
		{"zones", "http", "10.0.0.1:80@eu/a, 10.0.0.2:80@eu/", all{slice("s", "http:80", "10.0.0.1@a", "10.0.0.2")}, ""},
		{"a name with two numbers", "http", "10.0.0.1:80, 10.0.0.2:8080", all{slice("s", "http:80 x:1", "10.0.0.1"), slice("t", "http:8080 x:2", "10.0.0.2")}, ""},
		{"a number", "8080", "10.0.0.2:8080", all{slice("s", "http:80", "10.0.0.1"), slice("t", "http:8080", "10.0.0.2")}, ""},
		{"the only port", "", "10.0.0.1:80", all{slice("s", "http:80 udp:53", "10.0.0.1")}, ""},
		{"which port?", "", "", all{slice("s", "http:80 x:81", "10.0.0.1")}, ""},
		{"no such port", "y", "", all{slice("s", "http:80 udp:53", "10.0.0.1")}, ""},
		{"of UDP", "udp", "", all{slice("s", "udp:53", "10.0.0.1")}, ""},
		{"no number", "http", "", all{none}, ""},
		{"two families", "http", "10.0.0.1:80, 2001:db8::1:80", all{slice("s", "http:80", "10.0.0.1"), slice("t", "http:80", "2001:db8::1")}, ""},
		{"the fourth", "http", "10.0.0.1:80", all{slice("s", "http:80", "10.0.0.1"), slice("t", "http:80", "2001:db8::1")}, IPv4},
		{"the sixth", "http", "2001:db8::1:80", all{slice("s", "http:80", "10.0.0.1"), slice("t", "http:80", "2001:db8::1")}, IPv6},
		{"the first address", "http", "10.0.0.1:80", all{two}, ""},
		{"names of hosts, and what is none", "http", "", all{host, slice("s", "http:80", "x", "fe80::1%eth0")}, ""},
		{"nothing", "http", "", nil, ""},
	} {
		region := ""
		if strings.Contains(c.want, "@") {
			region = "eu"
		}
		if got := shown(endpointsOf(c.slices, c.port, region, c.families)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestParseMapping(t *testing.T) {
	for text, want := range map[string]string{
		"b=ns/s": "b ns s ", "b=ns/s:http": "b ns s http", "a=b=ns/s:80": "a=b ns s 80",
		"b": "", "b=s": "", "=ns/s": "", "b=ns/": "", "b=/s": "", "b=ns/s/t": "",
	} {
		m, err := ParseMapping(text)
		if got := fmt.Sprint(m.Cluster, " ", m.Namespace, " ", m.Name, " ", m.Port); err == nil && got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}
