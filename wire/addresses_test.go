package wire

import (
	"fmt"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/xds"
)

func tcp(host string, port uint32) *corev3.SocketAddress {
	return &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}
}

func socketAddress(s *corev3.SocketAddress) *corev3.Address {
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: s}}
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	udp, named, inside := tcp("10.0.0.1", 53), tcp("10.0.0.1", 0), tcp("10.0.0.1", 80)
	udp.Protocol = corev3.SocketAddress_UDP
	named.PortSpecifier = &corev3.SocketAddress_NamedPort{NamedPort: "http"}
	inside.NetworkNamespaceFilepath = "/run/netns/a"
	for _, tc := range []struct {
		name string
		of   *corev3.Address
		want string
	}{
		{"HEAL-4 a port", socketAddress(tcp("127.0.0.1", 80)), "[{tcp 80 127.0.0.1}]"},
		{"HEAL-4 another protocol", socketAddress(udp), "[{udp 53 10.0.0.1}]"},
		{"HEAL-4 every IPv4 host", socketAddress(tcp("0.0.0.0", 80)), "[{tcp 80 }]"},
		{"HEAL-4 every IPv6 host", socketAddress(tcp("::", 80)), "[{tcp 80 }]"},
		{"HEAL-4 IPv6 in a long form", socketAddress(tcp("2001:DB8:0:0::1", 80)), "[{tcp 80 2001:db8::1}]"},
		{"HEAL-4 IPv4 as IPv6", socketAddress(tcp("::ffff:10.0.0.1", 80)), "[{tcp 80 10.0.0.1}]"},
		{"HEAL-4 a name as host", socketAddress(tcp("localhost", 80)), "[{tcp 80 localhost}]"},
		{"HEAL-4 a named port", socketAddress(named), "[{tcp http 10.0.0.1}]"},
		{"HEAL-4 a network namespace", socketAddress(inside), "[{tcp 80 /run/netns/a 10.0.0.1}]"},
		{"HEAL-4 a port that the kernel chooses", socketAddress(tcp("127.0.0.1", 0)), "[]"},
		{"HEAL-4 a pipe", &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/a"}}}, "[{unix /run/a }]"},
		{"HEAL-4 an internal address", &corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{EnvoyInternalAddress: &corev3.EnvoyInternalAddress{
			AddressNameSpecifier: &corev3.EnvoyInternalAddress_ServerListenerName{ServerListenerName: "inner"}}}}, "[{internal inner }]"},
		{"HEAL-4 no address", nil, "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := NewResource(xds.Listener, "l", &listenerv3.Listener{Name: "l", Address: tc.of})
			if err != nil {
				t.Fatal(err)
			}
			if got := textOfAddresses(r.Addresses); got != tc.want {
				t.Errorf("%s, not %s", got, tc.want)
			}
		})
	}
	t.Run("HEAL-4 additional addresses", func(t *testing.T) {
		l := &listenerv3.Listener{Name: "l", Address: socketAddress(tcp("10.0.0.1", 80)), AdditionalAddresses: []*listenerv3.AdditionalAddress{
			{Address: socketAddress(tcp("10.0.0.2", 80))}, {Address: socketAddress(tcp("10.0.0.1", 80))}}}
		r, err := NewResource(xds.Listener, "l", l)
		if err != nil {
			t.Fatal(err)
		}
		if got := textOfAddresses(r.Addresses); got != "[{tcp 80 10.0.0.1} {tcp 80 10.0.0.2}]" {
			t.Error(got)
		}
		if c := Addresses(xds.Cluster, r.Body); c != nil {
			t.Errorf("a cluster has addresses: %v", *c)
		}
		if v2 := Addresses(xds.Listener.Legacy(), r.Body); textOfAddresses(v2) != textOfAddresses(r.Addresses) {
			t.Errorf("v2: %v", textOfAddresses(v2))
		}
		if c := Addresses(nil, r.Body); c != nil {
			t.Errorf("no type has addresses: %v", *c)
		}
		if a := Addresses(xds.Listener, r.Body[:len(r.Body)-1]); a != nil {
			t.Errorf("a damaged body has addresses: %v", *a)
		}
	})
}

// Of a field that an encoder wrote several times, the last one holds.
func TestAddressWithRepeatedFields(t *testing.T) {
	t.Parallel()
	for name, again := range map[string][]byte{
		"HEAL-4 protocol":       protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 0),
		"HEAL-4 port 0":         protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 0),
		"HEAL-4 port":           protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 8080),
		"HEAL-4 name of a port": protowire.AppendString(protowire.AppendTag(nil, 4, protowire.BytesType), "dns"),
	} {
		t.Run(name, func(t *testing.T) {
			first := tcp("10.0.0.1", 53)
			first.Protocol = corev3.SocketAddress_UDP
			b, err := proto.Marshal(first)
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, again...)
			var whole corev3.SocketAddress
			if err := proto.Unmarshal(b, &whole); err != nil {
				t.Fatal(err)
			}
			canonical, err := proto.Marshal(&whole)
			if err != nil {
				t.Fatal(err)
			}
			got, err := socketOf(b)
			if err != nil {
				t.Fatal(err)
			}
			want, err := socketOf(canonical)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func textOfAddresses(all *[]xds.Address) string {
	if all == nil {
		return "[]"
	}
	return fmt.Sprint(*all)
}

// FuzzAddresses compares the decoder with the generated code.
func FuzzAddresses(f *testing.F) {
	for _, a := range []*corev3.Address{socketAddress(tcp("0.0.0.0", 80)), {Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/a"}}}} {
		b, err := proto.Marshal(&listenerv3.Listener{Address: a, AdditionalAddresses: []*listenerv3.AdditionalAddress{{Address: a}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := Addresses(xds.Listener, body)
		l := &listenerv3.Listener{}
		if proto.Unmarshal(body, l) != nil {
			return
		}
		sockets := []*corev3.Address{l.GetAddress()}
		for _, a := range l.GetAdditionalAddresses() {
			sockets = append(sockets, a.GetAddress())
		}
		canonical, err := proto.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		again := Addresses(xds.Listener, canonical)
		for _, a := range sockets {
			s := a.GetSocketAddress()
			if s.GetPortValue() == 0 || again == nil {
				continue
			}
			found := false
			for _, x := range *again {
				found = found || x.Host == hostOf(s.GetAddress())
			}
			if !found {
				t.Fatalf("%v lacks the address %v", *again, s)
			}
		}
		if again == nil && len(sockets) == 1 && l.GetAddress().GetSocketAddress().GetPortValue() != 0 {
			t.Fatalf("%v: no address, before %v", l, textOfAddresses(got))
		}
	})
}

func BenchmarkAddresses(b *testing.B) {
	r, err := NewResource(xds.Listener, "l", &listenerv3.Listener{Name: "l", Address: socketAddress(tcp("10.0.0.1", 80)),
		FilterChains: make([]*listenerv3.FilterChain, 0), StatPrefix: string(make([]byte, 5000))})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		Addresses(xds.Listener, r.Body)
	}
}
