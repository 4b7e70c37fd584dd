package dns

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chancery-xds/chancery/internal/testkit/dnstest"
)

func alias(to string) dnsmessage.ResourceBody { return &dnsmessage.CNAMEResource{CNAME: host(to)} }

// chained are two CNAME records and the address of their end.
func chained() []dnsmessage.ResourceBody {
	return append([]dnsmessage.ResourceBody{alias("cdn"), alias("edge")}, dnstest.Addresses("10.0.0.1")...)
}

// inOrder returns a change of an answer that orders its records: each number is the index of a record.
func inOrder(order ...int) func(dnstest.Query, *dnsmessage.Message) bool {
	return func(_ dnstest.Query, m *dnsmessage.Message) bool {
		all := slices.Clone(m.Answers)
		for i, from := range order {
			m.Answers[i] = all[from]
		}
		return true
	}
}

// withEDNS changes an answer if the question has EDNS.
func withEDNS(change func(*dnsmessage.Message) bool) func(dnstest.Query, *dnsmessage.Message) bool {
	return func(q dnstest.Query, m *dnsmessage.Message) bool { return !q.EDNS || change(m) }
}

// withCode returns a change of an answer to an error without records, with the question or without it.
func withCode(code dnsmessage.RCode, question bool) func(*dnsmessage.Message) bool {
	return func(m *dnsmessage.Message) bool {
		m.Answers, m.Authorities = nil, nil
		m.RCode = code & 15
		if !question {
			m.Questions = nil
		}
		if code > 15 {
			opt := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
			_ = opt.Header.SetEDNS0(sizeUDP, code, false)
			m.Additionals = []dnsmessage.Resource{opt}
		}
		return true
	}
}

// An answer about an unresolved alias is valid for the shorter of both TTLs.
func TestTTLOfUnresolvedAlias(t *testing.T) {
	s := dnstest.Start(t)
	s.SetAnswer("end", dnsmessage.TypeA, dnstest.Answer{TTL: 7, Records: dnstest.Addresses("10.0.0.1")})
	for name, want := range map[string]time.Duration{"short": 5 * time.Second, "long": 7 * time.Second} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			ttl := map[string]uint32{"short": 5, "long": 9}[name]
			s.SetAnswer(name, dnsmessage.TypeA, dnstest.Answer{TTL: ttl, Records: []dnsmessage.ResourceBody{alias("end")}})
			if a, err := options(s.Addr).lookUp(t.Context(), question{name, dnsmessage.TypeA}); err != nil || texts(a) != "10.0.0.1" || a.ttl != want {
				t.Errorf("%q for %v, %v, want %v", texts(a), a.ttl, err, want)
			}
		})
	}
}

// An answer gives the records of the name whatever the order of its records, and whatever extensions its server knows.
func TestAnswersOfOddServers(t *testing.T) {
	const a = dnsmessage.TypeA
	one := dnstest.Addresses("10.0.0.1")
	s := dnstest.Start(t)
	for _, c := range []struct {
		name  string
		says  dnstest.Answer
		asked int // times; 0: it does not matter
	}{
		{"in-order", dnstest.Answer{Records: chained()}, 1},
		{"address-first", dnstest.Answer{Records: chained(), Change: inOrder(2, 0, 1)}, 1},
		{"second-alias-first", dnstest.Answer{Records: chained(), Change: inOrder(1, 0, 2)}, 1},
		{"reversed", dnstest.Answer{Records: chained(), Change: inOrder(2, 1, 0)}, 1},
		{"formerr", dnstest.Answer{Records: one, Change: withEDNS(withCode(dnsmessage.RCodeFormatError, true))}, 2},
		{"formerr-header-only", dnstest.Answer{Records: one, Change: withEDNS(withCode(dnsmessage.RCodeFormatError, false))}, 2},
		{"notimp", dnstest.Answer{Records: one, Change: withEDNS(withCode(dnsmessage.RCodeNotImplemented, true))}, 2},
		{"badvers", dnstest.Answer{Records: one, Change: withEDNS(withCode(badVersion, true))}, 2},
		{"servfail", dnstest.Answer{Records: one, Change: withEDNS(withCode(dnsmessage.RCodeServerFailure, true))}, 2},
		{"refused", dnstest.Answer{Records: one, Change: withEDNS(withCode(dnsmessage.RCodeRefused, false))}, 2},
		{"dropped", dnstest.Answer{Records: one, Change: withEDNS(func(*dnsmessage.Message) bool { return false })}, 2},
		{"formerr-long", dnstest.Answer{Records: one, Long: true, Change: withEDNS(withCode(dnsmessage.RCodeFormatError, true))}, 3},
		{"unfollowed", dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("in-order")}}, 1},
	} {
		t.Run("SAFE-17 "+c.name, func(t *testing.T) {
			s.SetAnswer(c.name, a, c.says)
			o := options(s.Addr)
			o.Timeout = 300 * time.Millisecond
			got, err := o.lookUp(t.Context(), question{c.name, a})
			if err != nil || texts(got) != "10.0.0.1" {
				t.Errorf("%q, %v", texts(got), err)
			}
			if n := s.Asked(c.name, a); n != c.asked {
				t.Errorf("asked %d times, want %d", n, c.asked)
			}
		})
	}
}

// An answer that is an error, wrong, foreign or malformed is never an empty answer.
func TestAnswersThatAreNotEmpty(t *testing.T) {
	const a, srv = dnsmessage.TypeA, dnsmessage.TypeSRV
	s := dnstest.Start(t)
	always := func(change func(*dnsmessage.Message) bool) func(dnstest.Query, *dnsmessage.Message) bool {
		return func(_ dnstest.Query, m *dnsmessage.Message) bool { return change(m) }
	}
	owner := func(name string) func(dnstest.Query, *dnsmessage.Message) bool {
		return always(func(m *dnsmessage.Message) bool {
			m.Answers[0].Header.Name = host(name)
			return true
		})
	}
	authority := func(body dnsmessage.ResourceBody) func(dnstest.Query, *dnsmessage.Message) bool {
		return always(func(m *dnsmessage.Message) bool {
			m.Authorities = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: host("zone"), Class: dnsmessage.ClassINET, TTL: 3}, Body: body}}
			return true
		})
	}
	s.SetAnswer("loop", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("loop")}})
	for _, c := range []struct {
		name string
		typ  dnsmessage.Type
		says dnstest.Answer
		want string // the error; "": an empty answer
	}{
		{"nodata", a, dnstest.Answer{}, ""},
		{"nodata-of-alias", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("nodata")}}, ""},
		{"nxdomain", a, dnstest.Answer{RCode: dnsmessage.RCodeNameError}, ""},
		{"nxdomain-of-alias", a, dnstest.Answer{RCode: dnsmessage.RCodeNameError, Records: []dnsmessage.ResourceBody{alias("x")}}, ""},
		{"no-service", srv, dnstest.Answer{Records: []dnsmessage.ResourceBody{&dnsmessage.SRVResource{Target: dnsmessage.MustNewName(".")}}}, ""},
		{"formerr", a, dnstest.Answer{RCode: dnsmessage.RCodeFormatError}, "FORMERR"},
		{"notimp", a, dnstest.Answer{RCode: dnsmessage.RCodeNotImplemented}, "NOTIMP"},
		{"notauth", a, dnstest.Answer{RCode: 9}, "answers 9"},
		{"badvers", a, dnstest.Answer{Change: always(withCode(badVersion, true))}, "BADVERS"},
		{"badmode", a, dnstest.Answer{Change: always(withCode(19, true))}, "answers 19"}, // its lower bits are those of NXDOMAIN
		{"header-only", a, dnstest.Answer{Change: always(withCode(dnsmessage.RCodeServerFailure, false))}, "SERVFAIL"},
		{"blocked", a, dnstest.Answer{Records: dnstest.Addresses("0.0.0.0")}, "usable"},
		{"broadcast", a, dnstest.Answer{Records: dnstest.Addresses("255.255.255.255")}, "usable"},
		{"short", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{raw(a, "\x0a\x00\x00")}}, "record 1"},
		{"bad-alias", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{raw(dnsmessage.TypeCNAME, "\x09")}}, "record 1"},
		{"portless", srv, dnstest.Answer{Records: []dnsmessage.ResourceBody{&dnsmessage.SRVResource{Target: host("t")}}}, "usable"},
		{"foreign", a, dnstest.Answer{Records: dnstest.Addresses("10.0.0.1"), Change: owner("other")}, "other names"},
		{"other-class", a, dnstest.Answer{Records: dnstest.Addresses("10.0.0.1"), Change: always(func(m *dnsmessage.Message) bool {
			m.Answers[0].Header.Class = dnsmessage.ClassCHAOS
			return true
		})}, "other names or types"},
		{"other-type", dnsmessage.TypeAAAA, dnstest.Answer{Records: dnstest.Addresses("10.0.0.1")}, "other names or types"},
		{"self", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("self")}}, "loop"},
		{"two-loop", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("x"), alias("two-loop")}}, "loop"},
		{"alias-of-loop", a, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("loop")}}, "loop"},
		{"service-alias", srv, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias("refuses")}}, "REFUSED"},
		{"referral", a, dnstest.Answer{Change: authority(&dnsmessage.NSResource{NS: host("ns")})}, "refers to other servers"},
		{"malformed-authority", a, dnstest.Answer{Change: authority(&dnsmessage.UnknownResource{Type: dnsmessage.TypeSOA, Data: []byte{1}})}, "SOA"},
	} {
		t.Run("SAFE-17 "+c.name, func(t *testing.T) {
			s.SetAnswer("refuses", srv, dnstest.Answer{RCode: dnsmessage.RCodeRefused})
			s.SetAnswer(c.name, c.typ, c.says)
			got, err := options(s.Addr).lookUp(t.Context(), question{c.name, c.typ})
			if c.want == "" && (err != nil || texts(got) != "") || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q, %v; want error %q", texts(got), err, c.want)
			}
		})
	}
}

// Aliases that each lead to another one, in answers of their own, are given up.
func TestEndlessAliases(t *testing.T) {
	s := dnstest.Start(t)
	for _, n := range []string{"a", "b"} {
		to := map[string]string{"a": "b", "b": "a"}[n]
		s.SetAnswer(n, dnsmessage.TypeA, dnstest.Answer{Records: []dnsmessage.ResourceBody{alias(to)}})
	}
	_, err := options(s.Addr).lookUp(t.Context(), question{"a", dnsmessage.TypeA})
	if err == nil || !strings.Contains(err.Error(), "more than 8 aliases") {
		t.Error(err)
	}
}

// raw is a record with any bytes.
func raw(typ dnsmessage.Type, data string) dnsmessage.ResourceBody {
	return &dnsmessage.UnknownResource{Type: typ, Data: []byte(data)}
}

// A record that cannot be read does not spoil the others, whatever its place. The answer has the place.
func TestBadRecordDoesNotSpoilOthers(t *testing.T) {
	const a, aaaa, srv = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV
	s := dnstest.Start(t)
	v4, v6 := dnstest.Addresses("10.0.0.1", "10.0.0.2"), dnstest.Addresses("fd00::1")
	for _, c := range []struct {
		name    string
		typ     dnsmessage.Type
		records []dnsmessage.ResourceBody
		want    string
		bad     string // "": all records can be read
	}{
		{"short", a, []dnsmessage.ResourceBody{v4[0], raw(a, "\x0a\x00\x00"), v4[1]}, "10.0.0.1 10.0.0.2", "record 2"},
		{"long", a, []dnsmessage.ResourceBody{raw(a, "\x0a\x00\x00\x03\x00"), v4[0]}, "10.0.0.1", "record 1"},
		{"last", a, []dnsmessage.ResourceBody{v4[0], raw(a, "")}, "10.0.0.1", "record 2"},
		{"short-v6", aaaa, []dnsmessage.ResourceBody{raw(aaaa, "\xfd"), v6[0]}, "fd00::1", "record 1"},
		{"target", srv, []dnsmessage.ResourceBody{raw(srv, "\x00\x00\x00\x01\x00\x50\xc0\xff\x01"), &dnsmessage.SRVResource{Target: host("t"), Port: 80}}, "t", "record 1"},
		{"other-type", a, []dnsmessage.ResourceBody{raw(dnsmessage.TypeMX, "\x01"), v4[0]}, "10.0.0.1", ""},
		{"broadcast", a, dnstest.Addresses("255.255.255.255", "10.0.0.1"), "10.0.0.1", ""},
	} {
		t.Run("SAFE-17 "+c.name, func(t *testing.T) {
			s.SetAnswer(c.name, c.typ, dnstest.Answer{Records: c.records})
			got, err := options(s.Addr).lookUp(t.Context(), question{c.name, c.typ})
			if err != nil || texts(got) != c.want || (got.bad != nil) != (c.bad != "") || got.bad != nil && !strings.Contains(got.bad.Error(), c.bad+" ") {
				t.Errorf("%q, %v, %v", texts(got), got.bad, err)
			}
		})
	}
}

// A server that refuses EDNS is asked again before the next server, which may know less.
func TestServerWithoutEDNSIsAskedAgainFirst(t *testing.T) {
	first, second := dnstest.Start(t), dnstest.Start(t) // the name does not exist on the second one
	first.SetAnswer("b", dnsmessage.TypeA, dnstest.Answer{
		Records: dnstest.Addresses("10.0.0.1"),
		Change:  withEDNS(withCode(dnsmessage.RCodeFormatError, true)),
	})
	got, err := options(first.Addr, second.Addr).lookUp(t.Context(), question{"b", dnsmessage.TypeA})
	if err != nil || texts(got) != "10.0.0.1" || second.Asked("b", dnsmessage.TypeA) != 0 {
		t.Errorf("SAFE-17: %q, %v", texts(got), err)
	}
}
