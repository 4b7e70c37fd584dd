package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// drain asks all due questions.
func (s *story) drain() {
	for due := true; due; {
		_, due = s.next(s.now)
	}
}

// An unresolved target does not keep removed addresses of resolved ones.
func TestDeadTargetKeepsNothingOfOthers(t *testing.T) {
	s := tell(t, "srv:s")
	s.asks("SRV s")
	s.hears("SRV s", time.Hour, "dead:80/0/1 ok:80/0/1", "")
	s.asks("A dead, AAAA dead, A ok, AAAA ok")
	s.hears("AAAA ok", time.Hour, "", "")
	s.hears("A ok", time.Minute, "10.0.0.1", "srv:s: 10.0.0.1:80/0/1")
	for i := range 20 {
		s.after(time.Minute)
		s.drain()
		s.fails("A dead")
		s.fails("AAAA dead")
		s.hears("AAAA ok", time.Hour, "", "")
		s.hears("A ok", time.Minute, fmt.Sprintf("10.0.0.%d", i+2), fmt.Sprintf("srv:s: 10.0.0.%d:80/0/1", i+2))
	}
}

// A removed target stays until the targets that came with its removal are resolved. If those go before,
// the next new targets take their place.
func TestRemovedTargetStaysUntilReplaced(t *testing.T) {
	s := tell(t, "srv:s")
	srv := func(says, want string) {
		t.Helper()
		s.after(time.Minute)
		s.drain()
		targets := ""
		for f := range strings.FieldsSeq(says) {
			targets += f + ":80/0/1 "
		}
		s.hears("SRV s", time.Minute, targets, want)
		s.drain()
	}
	srv("a", "")
	s.hears("A a", time.Hour, "10.0.0.1", "srv:s: 10.0.0.1:80/0/1")
	srv("dead", "")
	srv("dead2", "")
	if n := len(s.names[Name{"s", 0}].gone); n != 1 {
		t.Errorf("%d removed hosts are still known", n)
	}
	srv("dead3 b", "")
	s.hears("A b", time.Hour, "10.0.0.2", "srv:s: 10.0.0.1:80/0/1 10.0.0.2:80/0/1") // dead3 may replace a, too
	srv("dead4 b", "srv:s: 10.0.0.2:80/0/1")                                        // a was removed, and b is resolved
	srv("dead4 c", "")
	s.hears("A c", time.Hour, "10.0.0.3", "srv:s: 10.0.0.3:80/0/1") // dead4 existed when b was removed
	srv("dead4", "srv:s:")
}

// A name with too many addresses is logged once, keeps its earlier ones, and takes no more memory.
// Another name with one of its targets gets the addresses of that target.
func TestTooManyAddresses(t *testing.T) {
	s := tell(t, "srv:s", "dns:t50:80")
	f := s.names[Name{"s", 0}]
	var targets []record
	for i := range maxTargets {
		targets = append(targets, record{target: fmt.Sprintf("t%d", i), port: i + 1})
	}
	addresses := make([]record, maxAddresses)
	for i := range addresses {
		addresses[i].addr = netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
	}
	s.next(s.now)
	s.answered(s.now, ofText("SRV s"), answer{records: targets, ttl: time.Hour}, nil)
	failing := 0
	for {
		q, due := s.next(s.now)
		if !due {
			break
		}
		is := outcome{}
		switch q.typ {
		case dnsmessage.TypeA:
			is = s.answered(s.now, q, answer{records: addresses, ttl: time.Hour}, nil)
		case dnsmessage.TypeAAAA:
			is = s.answered(s.now, q, answer{}, nil)
		}
		if is.failing {
			failing++
		}
	}
	most, all := maxFound/maxAddresses, 0
	for _, l := range s.lookups {
		if l.typ == dnsmessage.TypeA {
			all += len(l.has)
		}
	}
	if all > maxFound+maxAddresses || len(f.found) > maxFound || failing < maxTargets-most-1 {
		t.Errorf("%d records, %d addresses, %d questions fail", all, len(f.found), failing)
	}
	if n := len(s.names[Name{"t50", 80}].found); n != maxAddresses {
		t.Errorf("t50 has %d", n)
	}
}

// Missing records are reported at once, and so is what follows.
func TestMissingRecordsAreReported(t *testing.T) {
	s := tell(t, "dns:b:80")
	s.asks("A b, AAAA b")
	s.hears("A b", 0, "10.0.0.1", "dns:b:80: 10.0.0.1:80")
	if s.hears("AAAA b", time.Hour, "", "").missing {
		t.Error("nothing is missing")
	}
	s.lookups[ofText("AAAA b")].settled = true // as after some minutes
	next := func() {
		s.after(time.Minute)
		s.drain()
	}
	next()
	s.fails("A b")
	next()
	if is := s.hears("A b", 0, "", ""); !is.missing {
		t.Error("no report after a failure")
	}
	next()
	if is := s.hears("A b", 0, "10.0.0.1", ""); !is.recovered {
		t.Error("no report of the recovery")
	}
	for i := range 3 {
		next()
		if is := s.hears("A b", 0, "", map[bool]string{true: "dns:b:80:"}[i == 2]); is.missing != (i == 0) || is.emptied != (i == 2) {
			t.Errorf("%d: %+v", i, is)
		}
	}
}
