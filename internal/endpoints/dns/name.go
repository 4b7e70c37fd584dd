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

// A Name is what is followed: the addresses of a host (A and AAAA), with a port; or, without a port, the targets of a
// service (SRV, RFC 2782), which have theirs.
type Name struct {
	Host string // in full, without the dot at its end: no list of domains is searched
	Port int    // 1 to 65535; 0: it is of SRV
}

// Parse reads dns:HOST:PORT or srv:NAME.
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
		if n.Port, err = strconv.Atoi(port); err != nil || n.Port < 1 || n.Port > 65535 {
			return Name{}, fmt.Errorf("%q: the port must be 1 to 65535", text)
		}
		if _, err := netip.ParseAddr(host); err == nil {
			return Name{}, fmt.Errorf("%q: an address needs no DNS", text)
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

// String is what [Parse] reads.
func (n Name) String() string {
	if n.Port == 0 {
		return "srv:" + n.Host
	}
	return "dns:" + n.Host + ":" + strconv.Itoa(n.Port)
}

// normal returns a name in the one way to write it: the DNS compares letters without their case.
func (n Name) normal() (Name, error) {
	n.Host = strings.ToLower(strings.TrimSuffix(n.Host, "."))
	if n.Port < 0 || n.Port > 65535 {
		return n, errors.New("the port must be 1 to 65535")
	}
	return n, valid(n.Host)
}

// valid returns what is wrong with a host.
func valid(host string) error {
	if host == "" || len(host) > 253 {
		return errors.New("a name has 1 to 253 bytes")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return errors.New("what is between two dots of a name has 1 to 63 bytes")
		}
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/\":`, r) }) {
		return errors.New("a name has letters, digits, - and _; others are written in ASCII (xn--)")
	}
	return nil
}

// An Address is where a name leads.
type Address struct {
	netip.AddrPort
	Host     string // whose address it is: the name, or the target of a record of SRV
	Priority int    // 0: the first choice. The priorities of records of SRV are numbered from 0 without gaps
	Weight   int    // of the record, at least 1; 0: it has none
}

// A question is what a server is asked.
type question struct {
	host string
	typ  dnsmessage.Type // A, AAAA or SRV
}

func (q question) String() string { return strings.TrimPrefix(q.typ.String(), "Type") + " " + q.host }

// questions are those of a host.
func questions(host string) [2]question {
	return [2]question{{host, dnsmessage.TypeA}, {host, dnsmessage.TypeAAAA}}
}

// A record is what an answer has: an address, or a target of SRV.
type record struct {
	addr netip.Addr

	target                 string // "": there is no such service, says RFC 2782
	port, priority, weight int
}

func (r record) compare(o record) int {
	return cmp.Or(r.addr.Compare(o.addr), cmp.Compare(r.target, o.target), cmp.Compare(r.port, o.port), cmp.Compare(r.priority, o.priority), cmp.Compare(r.weight, o.weight))
}

// sorted returns records in the order that they have however a server orders them, each once.
func sorted(all []record) []record {
	slices.SortFunc(all, record.compare)
	return slices.Compact(all)
}
