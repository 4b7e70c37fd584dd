package dns

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/chancery-xds/chancery/internal/testkit/dnstest"
)

// Records of other names are ignored, and unusable records are not addresses.
func TestRecordsOfOtherNamesAreIgnored(t *testing.T) {
	at := func(owner string, body dnsmessage.ResourceBody) dnsmessage.Resource {
		return dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: host(owner), Class: dnsmessage.ClassINET, TTL: 5}, Body: body}
	}
	ip := func(text string) dnsmessage.ResourceBody { return dnstest.Addresses(text)[0] }
	for _, c := range []struct {
		typ  dnsmessage.Type
		all  []dnsmessage.Resource
		want string // the records, or the error
	}{
		{dnsmessage.TypeA, []dnsmessage.Resource{at("evil", ip("10.6.6.6")), at("B", ip("10.0.0.1"))}, "10.0.0.1"},
		{dnsmessage.TypeA, []dnsmessage.Resource{at("x", &dnsmessage.CNAMEResource{CNAME: host("evil")}), at("evil", ip("10.6.6.6"))}, "other names"},
		{dnsmessage.TypeA, []dnsmessage.Resource{at("b", ip("224.0.0.1")), at("b", ip("0.0.0.0"))}, "usable"},
		{dnsmessage.TypeSRV, []dnsmessage.Resource{at("b", &dnsmessage.SRVResource{Target: host("t")}), at("b", &dnsmessage.SRVResource{Target: host("u"), Port: 1})}, "u"},
	} {
		q := question{"b", c.typ}
		_, asked, err := q.ask(7, true)
		if err != nil {
			t.Fatal(err)
		}
		b, err := (&dnsmessage.Message{Header: dnsmessage.Header{ID: 7, Response: true, RecursionAvailable: true}, Questions: []dnsmessage.Question{asked}, Answers: c.all}).Pack()
		if err != nil {
			t.Fatal(err)
		}
		p, h, err := answers(b, 7, asked)
		if err != nil {
			t.Fatal(err)
		}
		got, err := q.read(p, h)
		if err != nil && !strings.Contains(err.Error(), c.want) || err == nil && texts(got) != c.want {
			t.Errorf("%v: %q, want %q; %v", c.all, texts(got), c.want, err)
		}
	}
}

// Less than three answers confirm nothing, however far apart they are.
func TestTwoAnswersConfirmNothing(t *testing.T) {
	s := tell(t, "dns:b.example:80")
	s.asks("A b.example, AAAA b.example")
	s.hears("A b.example", 5*time.Second, "10.0.0.1", "dns:b.example:80: 10.0.0.1:80")
	s.fails("AAAA b.example")
	again := func(after time.Duration) {
		s.after(after)
		for range 2 {
			s.next(s.now)
		}
		s.fails("AAAA b.example")
	}
	for i, after := range []time.Duration{5 * time.Second, time.Hour, time.Hour} {
		again(after)
		if got := s.hears("A b.example", 0, "", "").emptied; got != (i == 2) {
			t.Errorf("%d: %t", i+1, got)
		}
	}
}

// Only a response to a query is an answer: a client that asks this port is not a server.
func TestOtherMessagesAreNoAnswers(t *testing.T) {
	q := question{"b", dnsmessage.TypeA}
	_, asked, err := q.ask(7, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]dnsmessage.Header{
		"an answer":               {ID: 7, Response: true},
		"a query":                 {ID: 7},
		"an answer of another ID": {ID: 8, Response: true},
		"a response to a NOTIFY":  {ID: 7, Response: true, OpCode: 4},
	} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			b, err := (&dnsmessage.Message{Header: h, Questions: []dnsmessage.Question{asked}}).Pack()
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := answers(b, 7, asked); (err == nil) != (name == "an answer") {
				t.Error(err)
			}
		})
	}
}

// An answer without records may come from a cache, so the next question waits for half of EmptyAfter.
func TestAbsenceIsConfirmedSlowly(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		s := tell(t, "dns:b.example:80")
		s.asks("A b.example, AAAA b.example")
		s.hears("AAAA b.example", time.Hour, "", "")
		s.hears("A b.example", 5*time.Second, "10.0.0.1", "dns:b.example:80: 10.0.0.1:80")
		s.after(5 * time.Second)
		s.asks("A b.example")
		s.hears("A b.example", 5*time.Second, "", "")
		s.after(30*time.Second - 1)
		s.asks("")
		s.after(1)
		s.asks("A b.example")
	})
}
