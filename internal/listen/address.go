// Package listen opens the listeners of the daemon, and limits their connections to the number of
// files that the process may open. It starts no goroutine and serves nothing.
package listen

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// An Address is an address to listen on or to dial. The zero value is no address.
type Address struct {
	Network string // "tcp" or "unix"
	Host    string // tcp: an IP address, optionally with a zone, or a name; "": all addresses of the machine
	Port    uint16 // tcp; 0: the system chooses one
	Path    string // unix
}

// maxPath is the longest path of a socket on this system.
const maxPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// Parse parses an address:
//
//	host:port  192.0.2.1:port  [2001:db8::1]:port  :port
//	unix:///path  unix:path
//
// Ports are numbers. The syntax for unix sockets is that of gRPC.
func Parse(s string) (Address, error) {
	a, err := parse(s)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", s, err)
	}
	return a, nil
}

func parse(s string) (Address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return unix(path)
	}
	if scheme, rest, is := strings.Cut(s, "://"); is {
		return Address{}, fmt.Errorf("%q does not belong there: did you mean %s?", scheme+"://", strings.TrimRight(rest, "/"))
	}
	host, port, err := net.SplitHostPort(s)
	if _, number := strconv.ParseUint(s, 10, 16); number == nil {
		return Address{}, fmt.Errorf("the host is missing: did you mean 127.0.0.1:%[1]s? :%[1]s means all addresses of this machine", s)
	}
	if err != nil {
		if e, ok := errors.AsType[*net.AddrError](err); ok {
			err = errors.New(e.Err)
		}
		return Address{}, fmt.Errorf("%w; want host:port, [ipv6]:port, :port or unix:///path", err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Address{}, fmt.Errorf("port %q is not a number between 0 and 65535", port)
	}
	switch {
	case strings.Contains(host, ":") && net.ParseIP(zoneless(host)) == nil:
		return Address{}, fmt.Errorf("%q is not an IPv6 address", host)
	case strings.ContainsAny(host, "/ "):
		return Address{}, fmt.Errorf("%q is not a host; want host:port, without a scheme", host)
	}
	return Address{Network: "tcp", Host: host, Port: uint16(n)}, nil
}

func unix(path string) (Address, error) {
	if rest, ok := strings.CutPrefix(path, "//"); ok {
		if !strings.HasPrefix(rest, "/") {
			return Address{}, fmt.Errorf("unix:// needs an absolute path: write unix:///%s, or unix:%s for a path in the working directory", rest, rest)
		}
		path = rest
	}
	switch {
	case path == "":
		return Address{}, errors.New("a path is missing; want unix:///path")
	case strings.HasPrefix(path, "@"), strings.Contains(path, "\x00"):
		return Address{}, errors.New("a socket without a file is not supported")
	case len(path) > maxPath:
		return Address{}, fmt.Errorf("the path has %d bytes, but the path of a socket may have at most %d", len(path), maxPath)
	}
	return Address{Network: "unix", Path: path}, nil
}

// String returns the address in the syntax of Parse.
func (a Address) String() string {
	switch {
	case a.Network == "":
		return ""
	case a.Network != "unix":
		return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port)))
	case strings.HasPrefix(a.Path, "/"):
		return "unix://" + a.Path
	}
	return "unix:" + a.Path
}

// IP returns the host's IP address, without its zone; nil if the host is a name or empty.
func (a Address) IP() net.IP { return net.ParseIP(zoneless(a.Host)) }

// Any reports whether the address means all addresses of the machine: it can be listened on, but not
// dialed.
func (a Address) Any() bool {
	return a.Network == "tcp" && (a.Host == "" || a.IP().IsUnspecified())
}

// Loopback reports whether only this machine can reach a listener on the address. Of all names, it
// only knows localhost; for an open listener use [Loopback].
func (a Address) Loopback() bool {
	return a.Network == "unix" || strings.EqualFold(strings.TrimSuffix(a.Host, "."), "localhost") || a.IP().IsLoopback()
}

// Loopback reports whether an address of a listener or of a peer belongs to this machine.
func Loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// LocalHost reports whether the Host of an HTTP request is this machine: an address of the loopback,
// or localhost. "" counts as this machine, because HTTP/1.0 needs no Host; browsers always send one.
//
// A listener on the loopback must check this. A web page can send requests to the loopback of its
// visitor, but with its own host name, also if that name resolves to the loopback (DNS rebinding).
func LocalHost(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return host == "" || Address{Network: "tcp", Host: host}.Loopback()
}

func zoneless(host string) string {
	host, _, _ = strings.Cut(host, "%")
	return host
}
