package dns

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// A Name is a DNS name to resolve: a host (A and AAAA) with a port; or, without a port, a service (SRV,
// RFC 2782), whose targets have ports.
type Name struct {
	Host string // fully qualified, without the final dot: no search domains are used
	Port int    // 1 to 65535; 0: an SRV name
}

// Parse parses dns:HOST:PORT or srv:NAME.
func Parse(text string) (Name, error) {
	kind, rest, _ := strings.Cut(text, ":")
	n := Name{Host: rest}
	switch kind {
	case "dns":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			return Name{}, fmt.Errorf("%q: write dns:HOST:PORT", text)
		}
		n.Host = host
		n.Port, err = strconv.Atoi(port)
		if err != nil || n.Port < 1 || n.Port > 65535 {
			return Name{}, fmt.Errorf("%q: the port must be 1 to 65535", text)
		}
		if _, err := netip.ParseAddr(host); err == nil {
			return Name{}, fmt.Errorf("%q: this is an address, not a DNS name", text)
		}
	case "srv":
	default:
		return Name{}, fmt.Errorf("%q: write dns:HOST:PORT or srv:_SERVICE._PROTOCOL.NAME", text)
	}
	n, err := n.normal()
	if err != nil {
		return Name{}, fmt.Errorf("%q: %w", text, err)
	}
	return n, nil
}

// String returns the format of [Parse].
func (n Name) String() string {
	if n.Port == 0 {
		return "srv:" + n.Host
	}
	return "dns:" + n.Host + ":" + strconv.Itoa(n.Port)
}

// normal returns the canonical form of a name: the DNS ignores case.
func (n Name) normal() (Name, error) {
	n.Host = strings.ToLower(strings.TrimSuffix(n.Host, "."))
	if n.Port < 0 || n.Port > 65535 {
		return n, errors.New("the port must be 1 to 65535")
	}
	return n, valid(n.Host)
}

// valid returns the reason why a host is invalid, or nil.
func valid(host string) error {
	if host == "" || len(host) > 253 {
		return errors.New("a name has 1 to 253 bytes")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("each label of a name has 1 to 63 bytes")
		}
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/\":`, r) }) {
		return errors.New("a name has letters, digits, - and _; write other characters in ASCII (xn--)")
	}
	return nil
}

// An Address is a resolved address of a name.
type Address struct {
	netip.AddrPort
	Host     string // its host: the name, or the target of an SRV record
	Priority int    // 0: the first choice. The priorities of SRV records are renumbered from 0 without gaps
	Weight   int    // of the record, at least 1; 0: it has none
}

// A question is one query for a server.
type question struct {
	host string
	typ  dnsmessage.Type // A, AAAA or SRV
}

func (q question) String() string { return strings.TrimPrefix(q.typ.String(), "Type") + " " + q.host }

// questions are the questions about a host.
func questions(host string) [2]question {
	return [2]question{{host, dnsmessage.TypeA}, {host, dnsmessage.TypeAAAA}}
}

// A record is one record of an answer: an address, or an SRV target.
type record struct {
	addr netip.Addr

	target                 string // "": RFC 2782: the service does not exist
	port, priority, weight int
}

func (r record) compare(o record) int {
	return cmp.Or(r.addr.Compare(o.addr), cmp.Compare(r.target, o.target), cmp.Compare(r.port, o.port), cmp.Compare(r.priority, o.priority), cmp.Compare(r.weight, o.weight))
}

// sorted sorts records, whatever the server's order, and removes duplicates.
func sorted(all []record) []record {
	slices.SortFunc(all, record.compare)
	return slices.Compact(all)
}
