package dns

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chancery-xds/chancery/internal/testkit/dnstest"
)

func options(servers ...string) *Options {
	return &Options{Servers: servers, Timeout: 5 * time.Second}
}

func texts(a answer) string {
	var out []string
	for _, r := range a.records {
		if r.target != "" {
			out = append(out, r.target)
		} else {
			out = append(out, r.addr.String())
		}
	}
	return strings.Join(out, " ")
}

func host(name string) dnsmessage.Name { return dnsmessage.MustNewName(name + ".") }

// Answers over UDP and TCP are parsed: addresses, targets, CNAME chains, TTLs, and invalid answers.
func TestLookUp(t *testing.T) {
	s := dnstest.Start(t)
	const a, aaaa, srv = dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypeSRV
	many := make([]string, maxAddresses+1)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()
	}
	tooMany := slices.Repeat([]dnsmessage.ResourceBody{&dnsmessage.SRVResource{Target: host("t"), Port: 1}}, maxTargets+1)
	for _, c := range []struct {
		name string
		typ  dnsmessage.Type
		says dnstest.Answer
		want string // the records, or the error
		ttl  time.Duration
	}{
		{"two", a, dnstest.Answer{TTL: 7, Records: dnstest.Addresses("10.0.0.2", "10.0.0.1")}, "10.0.0.2 10.0.0.1", 7 * time.Second},
		{"six", aaaa, dnstest.Answer{TTL: 1 << 31, Records: dnstest.Addresses("2001:db8::1")}, "2001:db8::1", 0},
		{"alias", a, dnstest.Answer{TTL: 5, Records: append([]dnsmessage.ResourceBody{&dnsmessage.CNAMEResource{CNAME: host("Other")}}, dnstest.Addresses("10.0.0.3")...)}, "10.0.0.3", 5 * time.Second},
		{"blocked", a, dnstest.Answer{TTL: 5, Records: dnstest.Addresses("0.0.0.0")}, "no record of the answer is usable", 0},
		{"dangling", a, dnstest.Answer{TTL: 5, Records: []dnsmessage.ResourceBody{&dnsmessage.CNAMEResource{CNAME: host("other")}}}, "", 0},
		{"empty", a, dnstest.Answer{TTL: 9}, "", 9 * time.Second},
		{"gone", a, dnstest.Answer{TTL: 9, RCode: dnsmessage.RCodeNameError}, "", 9 * time.Second},
		{"services", srv, dnstest.Answer{TTL: 5, Records: []dnsmessage.ResourceBody{&dnsmessage.SRVResource{Target: host("T1"), Port: 80}, &dnsmessage.SRVResource{Target: dnsmessage.MustNewName("."), Port: 80}}}, "t1", 5 * time.Second},
		{"long", a, dnstest.Answer{TTL: 5, Long: true, Records: dnstest.Addresses(many[1:]...)}, strings.Join(many[1:], " "), 5 * time.Second},
		{"broken", a, dnstest.Answer{RCode: dnsmessage.RCodeServerFailure}, "the server answers SERVFAIL", 0},
		{"refused", a, dnstest.Answer{RCode: dnsmessage.RCodeRefused}, "the server answers REFUSED", 0},
		{"lame", a, dnstest.Answer{Lame: true}, "has no data for the name", 0},
		{"too-many", srv, dnstest.Answer{Long: true, Records: tooMany}, "more than 1000 records", 0},
		{"too-many-addresses", a, dnstest.Answer{Long: true, Records: dnstest.Addresses(many...)}, "more than 1000 records", 0},
		{"forged", a, dnstest.Answer{TTL: 5, Records: dnstest.Addresses("10.0.0.4"), Before: func(b []byte) [][]byte {
			other := slices.Clone(b)
			other[0]++
			other[len(other)-1]++ // of the address
			return [][]byte{other, b[:20], {}, slices.Concat(b[:13], []byte("evil!!"), b[19:])}
		}}, "10.0.0.4", 5 * time.Second},
	} {
		s.SetAnswer(c.name, c.typ, c.says)
		got, err := options(s.Addr).lookUp(t.Context(), question{c.name, c.typ})
		if err != nil {
			if c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.name, err, c.want)
			}
		} else if texts(got) != c.want || got.ttl != c.ttl {
			t.Errorf("%s: %q good for %v, want %q for %v", c.name, texts(got), got.ttl, c.want, c.ttl)
		}
	}
	if s.TCP() == 0 || s.Asked("long", a) != 2 {
		t.Error("no question came over TCP")
	}
}

// A server that does not answer is given up after the timeout.
func TestSilentServer(t *testing.T) {
	s := dnstest.Start(t)
	s.SetAnswer("silent", dnsmessage.TypeA, dnstest.Answer{Silent: true})
	o := options(s.Addr)
	o.Timeout = 50 * time.Millisecond
	began := time.Now()
	if _, err := o.lookUp(t.Context(), question{"silent", dnsmessage.TypeA}); err == nil || !strings.Contains(err.Error(), "no answer in time") || time.Since(began) > 3*time.Second {
		t.Error(err, time.Since(began))
	}
}

// A truncated answer is a failure if TCP fails.
func TestTruncatedAnswerWithoutTCP(t *testing.T) {
	s := dnstest.Start(t)
	s.SetAnswer("long", dnsmessage.TypeA, dnstest.Answer{Long: true, Records: dnstest.Addresses("10.0.0.1", "10.0.0.2")})
	if _, err := options().over(t.Context(), "udp", s.Addr, question{"long", dnsmessage.TypeA}, true); !errors.Is(err, errTruncated) {
		t.Error(err)
	}
}

// The second server answers when the first does not; no server is asked after the deadline.
func TestSecondServer(t *testing.T) {
	bad, good := dnstest.Start(t), dnstest.Start(t)
	bad.SetAnswer("b", dnsmessage.TypeA, dnstest.Answer{RCode: dnsmessage.RCodeServerFailure})
	good.SetAnswer("b", dnsmessage.TypeA, dnstest.Answer{Records: dnstest.Addresses("10.0.0.1")})
	got, err := options(bad.Addr, good.Addr).lookUp(t.Context(), question{"b", dnsmessage.TypeA})
	if err != nil || texts(got) != "10.0.0.1" {
		t.Error(texts(got), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := options(bad.Addr).lookUp(ctx, question{"b", dnsmessage.TypeA}); err == nil {
		t.Error("no error")
	}
}

// The absence of records at a later server does not count while an earlier server fails. Records do.
func TestAbsenceAtLaterServer(t *testing.T) {
	const failing, noRecords, odd = "does not count", "", "has no data for the name"
	servfail, refused := dnstest.Answer{RCode: dnsmessage.RCodeServerFailure}, dnstest.Answer{RCode: dnsmessage.RCodeRefused}
	lame, blocked, silent := dnstest.Answer{Lame: true}, dnstest.Answer{Records: dnstest.Addresses("0.0.0.0")}, dnstest.Answer{Silent: true}
	nxdomain, nodata, records := dnstest.Answer{RCode: dnsmessage.RCodeNameError}, dnstest.Answer{}, dnstest.Answer{Records: dnstest.Addresses("10.0.0.1")}
	for name, c := range map[string]struct {
		servers []dnstest.Answer
		want    string // the records, or a part of the error
	}{
		"SERVFAIL, NXDOMAIN":           {[]dnstest.Answer{servfail, nxdomain}, failing},
		"SERVFAIL, NODATA":             {[]dnstest.Answer{servfail, nodata}, failing},
		"REFUSED, NXDOMAIN":            {[]dnstest.Answer{refused, nxdomain}, failing},
		"lame, NXDOMAIN":               {[]dnstest.Answer{lame, nxdomain}, failing},
		"unusable, NXDOMAIN":           {[]dnstest.Answer{blocked, nxdomain}, failing},
		"silent, NXDOMAIN":             {[]dnstest.Answer{silent, nxdomain}, failing},
		"SERVFAIL, NXDOMAIN, lame":     {[]dnstest.Answer{servfail, nxdomain, lame}, odd},
		"SERVFAIL, NXDOMAIN, records":  {[]dnstest.Answer{servfail, nxdomain, records}, "10.0.0.1"},
		"SERVFAIL, records":            {[]dnstest.Answer{servfail, records}, "10.0.0.1"},
		"NXDOMAIN, records":            {[]dnstest.Answer{nxdomain, records}, noRecords},
		"NODATA, SERVFAIL":             {[]dnstest.Answer{nodata, servfail}, noRecords},
		"NXDOMAIN, SERVFAIL, NXDOMAIN": {[]dnstest.Answer{nxdomain, servfail, nxdomain}, noRecords},
	} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			o := options()
			for _, says := range c.servers {
				s := dnstest.Start(t)
				s.SetAnswer("b", dnsmessage.TypeA, says)
				o.Servers = append(o.Servers, s.Addr)
				if says.Silent {
					o.Timeout = 100 * time.Millisecond
				}
			}
			got, err := o.lookUp(t.Context(), question{"b", dnsmessage.TypeA})
			if err == nil && texts(got) != c.want || err != nil && (c.want == noRecords || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%q, %v, want %q", texts(got), err, c.want)
			}
		})
	}
}

func TestServersOfTheSystem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	for text, want := range map[string]string{
		"# x\nsearch a b\nnameserver 10.0.0.1\nnameserver ::1\nnameserver x\noptions ndots:5\n": "10.0.0.1:53 [::1]:53",
		"search a\n": "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := system(path)
		if strings.Join(got, " ") != want || (err != nil) != (want == "") {
			t.Error(got, err)
		}
	}
	if _, err := system(path + "x"); err == nil {
		t.Error("no error for a missing file")
	}
}
