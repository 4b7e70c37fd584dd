package wire

import (
	"net/netip"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/xds"
)

// Addresses returns the addresses that a client binds for an encoded resource. It returns nil if the type has no
// addresses ([xds.Type.Binds]), or if the body has none or cannot be decoded. Addresses with port 0 are left out,
// because the client chooses a free port.
func Addresses(t *xds.Type, body []byte) *[]xds.Address {
	const (
		address      = 2 // of a Listener
		additional   = 33
		ofAdditional = 1 // of an AdditionalAddress
	)
	if t == nil || !t.Binds {
		return nil
	}
	var all []xds.Address
	add := func(b []byte) error {
		a, err := addressOf(b)
		if a.Port != "" && !slices.Contains(all, a) {
			all = append(all, a)
		}
		return err
	}
	err := eachField(body, address, add)
	if err == nil {
		err = eachField(body, additional, func(b []byte) error { return eachField(b, ofAdditional, add) })
	}
	if err != nil || len(all) == 0 {
		return nil
	}
	return &all
}

// addressOf decodes an envoy.config.core.v3.Address. The zero Address means none.
func addressOf(b []byte) (a xds.Address, err error) {
	const socket, pipe, internal, pipePath, internalName = 1, 2, 3, 1, 1
	named := func(prefix string) func([]byte) error {
		return func(b []byte) error { a = xds.Address{Port: prefix + string(b)}; return nil }
	}
	for len(b) > 0 && err == nil {
		var f field
		f, b, err = next(b)
		if err != nil || f.typ != protowire.BytesType {
			continue
		}
		switch f.num {
		case socket:
			a, err = socketOf(f.data)
		case pipe:
			err = eachField(f.data, pipePath, named("unix "))
		case internal:
			err = eachField(f.data, internalName, named("internal "))
		}
	}
	return a, err
}

// socketOf decodes an envoy.config.core.v3.SocketAddress.
func socketOf(b []byte) (a xds.Address, err error) {
	const (
		protocol  = 1 // 1: UDP
		host      = 2
		port      = 3
		namedPort = 4
		namespace = 7
	)
	network, number, in := "tcp ", "", ""
	for len(b) > 0 {
		var f field
		f, b, err = next(b)
		if err != nil {
			return xds.Address{}, err
		}
		switch {
		case f.num == protocol && f.typ == protowire.VarintType:
			network = "tcp "
			if f.varint == 1 {
				network = "udp "
			}
		case f.num == host && f.typ == protowire.BytesType:
			a.Host = hostOf(string(f.data))
		case f.num == port && f.typ == protowire.VarintType:
			number = ""
			if f.varint != 0 {
				number = strconv.FormatUint(f.varint, 10)
			}
		case f.num == namedPort && f.typ == protowire.BytesType:
			number = string(f.data)
		case f.num == namespace && f.typ == protowire.BytesType:
			in = " " + string(f.data)
		}
	}
	if number == "" {
		return xds.Address{}, nil
	}
	a.Port = network + number + in
	return a, nil
}

// hostOf returns a canonical host, and "" for an address that means every host.
func hostOf(s string) string {
	ip, err := netip.ParseAddr(s)
	switch {
	case err != nil:
		return s
	case ip.IsUnspecified():
		return ""
	}
	return ip.Unmap().String()
}
