package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A story is a tracker with a time.
type story struct {
	*testing.T
	*tracker
	now time.Time
}

func tell(t *testing.T, names ...string) *story {
	t.Helper()
	o := &Options{MinTTL: 5 * time.Second, MaxTTL: 5 * time.Minute, EmptyAfter: time.Minute}
	s := &story{t, newTracker(o, func() float64 { return 0 }), time.Unix(1000, 0)}
	for _, text := range names {
		n, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s.follow(s.now, n)
	}
	return s
}

// asks checks which questions are due now, and marks them as asked.
func (s *story) asks(want string) {
	s.Helper()
	var all []string
	for {
		q, ok := s.next(s.now)
		if !ok {
			break
		}
		all = append(all, q.String())
	}
	if got := sortedWords(all); got != sortedWords(strings.Split(want, ", ")) {
		s.Errorf("asks %q, want %q", got, want)
	}
}

func sortedWords(all []string) string {
	m := map[string]bool{}
	for _, w := range all {
		if w != "" {
			m[w] = true
		}
	}
	out := ""
	for len(m) > 0 {
		least := ""
		for w := range m {
			if least == "" || w < least {
				least = w
			}
		}
		delete(m, least)
		out += least + ", "
	}
	return out
}

var kinds = map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "SRV": dnsmessage.TypeSRV}

func ofText(text string) question {
	kind, host, _ := strings.Cut(text, " ")
	return question{host, kinds[kind]}
}

// hears answers a question with addresses, or with targets as HOST:PORT/PRIORITY/WEIGHT; "" means no
// records. want are the new addresses of the names that changed.
func (s *story) hears(q string, ttl time.Duration, says, want string) outcome {
	s.Helper()
	a := answer{ttl: ttl}
	for f := range strings.FieldsSeq(says) {
		r := record{}
		if strings.HasPrefix(q, "SRV") {
			parts := strings.Split(f, "/")
			r.target, _, _ = strings.Cut(parts[0], ":")
			if _, err := fmt.Sscanf(strings.Join(parts, " "), r.target+":%d %d %d", &r.port, &r.priority, &r.weight); err != nil {
				s.Fatal(f, err)
			}
		} else {
			r.addr = netip.MustParseAddr(f)
		}
		a.records = append(a.records, r)
	}
	return s.outcome(s.answered(s.now, ofText(q), a, nil), want)
}

func (s *story) fails(q string) outcome {
	s.Helper()
	return s.outcome(s.answered(s.now, ofText(q), answer{}, errors.New("SERVFAIL")), "")
}

func (s *story) outcome(is outcome, want string) outcome {
	s.Helper()
	got := ""
	for _, f := range is.changed {
		got += f.name.String() + ":"
		for _, a := range f.found {
			got += " " + a.String()
			if f.name.Port == 0 {
				got += fmt.Sprintf("/%d/%d", a.Priority, a.Weight)
			}
		}
		got += ";"
	}
	if strings.TrimSuffix(got, ";") != want {
		s.Errorf("changed: %q, want %q", got, want)
	}
	return is
}

// after advances the time.
func (s *story) after(d time.Duration) { s.now = s.now.Add(d) }

// Addresses are reported when they are found and when they change; another order is not a change.
func TestOtherOrderIsNoChange(t *testing.T) {
	s := tell(t, "dns:b.example:80")
	s.asks("A b.example, AAAA b.example")
	s.hears("A b.example", 10*time.Second, "10.0.0.2 10.0.0.1", "dns:b.example:80: 10.0.0.1:80 10.0.0.2:80")
	s.hears("AAAA b.example", 30*time.Second, "", "")
	s.after(10*time.Second - 1)
	s.asks("")
	s.after(1)
	s.asks("A b.example")
	s.hears("A b.example", 10*time.Second, "10.0.0.1 10.0.0.2 10.0.0.1", "")
	s.after(10 * time.Second)
	s.asks("A b.example")
	s.hears("A b.example", 10*time.Second, "10.0.0.2", "dns:b.example:80: 10.0.0.2:80")
}

// Empty answers are reported once, and again after a failure, not as a success.
func TestEmptyAnswerAfterFailure(t *testing.T) {
	t.Run("SAFE-17 kept addresses are reported", func(t *testing.T) {
		s := tell(t, "dns:b.example:80")
		s.asks("A b.example, AAAA b.example")
		s.hears("AAAA b.example", time.Hour, "", "")
		s.hears("A b.example", 10*time.Second, "10.0.0.1", "dns:b.example:80: 10.0.0.1:80")
		next := func() {
			t.Helper()
			s.after(30 * time.Second)
			s.asks("A b.example")
		}
		for i, want := range []bool{true, false} {
			next()
			if is := s.hears("A b.example", 0, "", ""); is.missing != want {
				t.Errorf("empty answer %d: %+v", i, is)
			}
		}
		next()
		s.fails("A b.example")
		next()
		s.opts.EmptyAfter = time.Hour
		if is := s.hears("A b.example", 0, "", ""); !is.missing {
			t.Errorf("the empty answer after the failure: %+v", is)
		}
	})
}

// A TTL is obeyed within bounds.
func TestBoundsOfTTL(t *testing.T) {
	s := tell(t, "dns:b.example:80")
	for ttl, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Hour: 5 * time.Minute, time.Minute: time.Minute} {
		s.asks("A b.example, AAAA b.example")
		s.hears("A b.example", ttl, "10.0.0.1", map[bool]string{true: "dns:b.example:80: 10.0.0.1:80"}[len(s.names[Name{"b.example", 80}].found) == 0])
		if when := s.lookups[ofText("A b.example")].when; when != s.now.Add(want) {
			t.Errorf("ttl %v: asked again after %v, want %v", ttl, when.Sub(s.now), want)
		}
		s.hears("AAAA b.example", want, "", "")
		s.after(5 * time.Minute)
	}
	s.random = func() float64 { return 0.5 }
	s.asks("A b.example, AAAA b.example")
	s.hears("A b.example", time.Minute, "10.0.0.1", "")
	if when := s.lookups[ofText("A b.example")].when; when != s.now.Add(63*time.Second) {
		t.Errorf("asked again after %v", when.Sub(s.now))
	}
}

// A failed question changes nothing, is logged once, and is asked again at growing intervals.
func TestFailureChangesNothing(t *testing.T) {
	s := tell(t, "dns:b.example:80")
	s.asks("A b.example, AAAA b.example")
	s.hears("AAAA b.example", time.Minute, "::1", "dns:b.example:80: [::1]:80")
	if !s.fails("A b.example").failing {
		t.Error("no report")
	}
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		s.after(wait*time.Second - 1)
		s.asks(map[bool]string{true: "AAAA b.example"}[wait == 30 && s.lookups[ofText("AAAA b.example")].at >= 0])
		s.after(1)
		s.asks("A b.example")
		if s.fails("A b.example").failing {
			t.Error("reported twice")
		}
	}
	s.fails("AAAA b.example")
	s.after(time.Minute)
	s.asks("A b.example, AAAA b.example")
	if !s.hears("A b.example", time.Minute, "10.0.0.1", "dns:b.example:80: 10.0.0.1:80 [::1]:80").recovered {
		t.Error("no report of the recovery")
	}
}

// The absence of records is confirmed by three answers over a minute, without an address or a failure between them.
func TestEmptyIsConfirmed(t *testing.T) {
	s := tell(t, "dns:b.example:80")
	s.asks("A b.example, AAAA b.example")
	s.hears("A b.example", 5*time.Second, "10.0.0.1", "dns:b.example:80: 10.0.0.1:80")
	s.hears("AAAA b.example", time.Hour, "", "")
	s.lookups[ofText("AAAA b.example")].settled = true // as after some minutes
	s.after(5 * time.Second)
	s.asks("A b.example")
	s.hears("A b.example", 0, "", "")
	s.after(30 * time.Second)
	s.asks("A b.example")
	s.hears("A b.example", 0, "", "")
	s.after(30 * time.Second)
	s.asks("A b.example")
	s.hears("A b.example", 0, "10.0.0.1", "") // the empty answer was a mistake
	for range 2 {
		s.after(30 * time.Second)
		s.asks("A b.example")
		s.hears("A b.example", 0, "", "")
	}
	for range 3 { // SAFE-17: NXDOMAIN and SERVFAIL in turns
		s.after(30 * time.Second)
		s.asks("A b.example")
		s.fails("A b.example")
		s.after(time.Second)
		s.asks("A b.example")
		if is := s.hears("A b.example", 0, "", ""); !is.missing {
			t.Error("no report")
		}
	}
	s.after(30 * time.Second)
	s.asks("A b.example")
	s.hears("A b.example", 0, "", "")
	s.after(30 * time.Second)
	s.asks("A b.example")
	if !s.hears("A b.example", 0, "", "dns:b.example:80:").emptied {
		t.Error("no report")
	}
	// A cached answer of a resolver confirms nothing: the next question comes after its TTL.
	s = tell(t, "dns:b.example:80")
	s.asks("A b.example, AAAA b.example")
	s.hears("A b.example", 2*time.Minute, "", "")
	if when := s.lookups[ofText("A b.example")].when; when != s.now.Add(2*time.Minute) {
		t.Error(when.Sub(s.now))
	}
	// A negative EmptyAfter never removes the addresses.
	s = tell(t, "dns:b.example:80")
	s.opts.EmptyAfter = -1
	s.addKnown(s.now, s.names[Name{"b.example", 80}], []Address{{netip.MustParseAddrPort("10.0.0.1:80"), "", 0, 0}})
	s.asks("A b.example, AAAA b.example")
	s.lookups[ofText("AAAA b.example")].settled = true
	for range 10 {
		s.hears("A b.example", 0, "", "")
		s.after(time.Hour)
		s.next(s.now)
	}
}

// SRV records give targets with ports, priorities and weights; two names share the questions of a target.
func TestServiceRecords(t *testing.T) {
	s := tell(t, "srv:_h._tcp.b.example", "dns:t1.example:9")
	s.asks("SRV _h._tcp.b.example, A t1.example, AAAA t1.example")
	s.hears("A t1.example", time.Hour, "10.0.0.1", "dns:t1.example:9: 10.0.0.1:9")
	s.hears("AAAA t1.example", time.Hour, "", "")
	s.hears("SRV _h._tcp.b.example", time.Minute, "t1.example:80/10/5 t2.example:81/20/0 t1.example:82/20/70000", "srv:_h._tcp.b.example: 10.0.0.1:80/0/5 10.0.0.1:82/1/70000")
	s.asks("A t2.example, AAAA t2.example")
	s.hears("A t2.example", time.Hour, "10.0.0.2", "srv:_h._tcp.b.example: 10.0.0.1:80/0/5 10.0.0.1:82/1/70000 10.0.0.2:81/1/1")
	s.hears("AAAA t2.example", time.Hour, "::2", "srv:_h._tcp.b.example: 10.0.0.1:80/0/5 10.0.0.1:82/1/70000 10.0.0.2:81/1/1 [::2]:81/1/1")
	s.after(time.Minute)
	s.asks("SRV _h._tcp.b.example")
	s.fails("SRV _h._tcp.b.example")
	s.after(time.Second)
	s.asks("SRV _h._tcp.b.example")
	s.hears("SRV _h._tcp.b.example", time.Minute, "t2.example:81/20/0", "srv:_h._tcp.b.example: 10.0.0.2:81/0/1 [::2]:81/0/1")
	if len(s.lookups) != 5 {
		t.Errorf("%d questions, want those of the service, of t2, and of t1 for the other name", len(s.lookups))
	}
}

// A new target that cannot be resolved replaces no other until it is resolved.
func TestNewTargetThatFails(t *testing.T) {
	s := tell(t, "srv:s")
	s.asks("SRV s")
	s.hears("SRV s", time.Minute, "old:80/0/1", "")
	s.asks("A old, AAAA old")
	s.hears("A old", time.Hour, "10.0.0.1", "srv:s: 10.0.0.1:80/0/1")
	s.fails("AAAA old")
	s.after(time.Minute)
	s.asks("SRV s, AAAA old")
	s.hears("SRV s", time.Minute, "new:80/0/1", "")
	s.asks("A new, AAAA new")
	s.fails("A new")
	s.fails("AAAA new")
	s.after(time.Second)
	s.asks("A new, AAAA new")
	s.hears("AAAA new", time.Hour, "", "")
	s.hears("A new", time.Hour, "10.0.0.2", "srv:s: 10.0.0.2:80/0/1")
}

// After a start, the earlier addresses count until an answer changes them: missing ones go, and failures
// remove nothing.
func TestKnownAddressesAfterStart(t *testing.T) {
	s := tell(t, "dns:b.example:80", "srv:s")
	s.addKnown(s.now, s.names[Name{"b.example", 80}], []Address{{netip.MustParseAddrPort("10.0.0.1:80"), "b.example", 0, 0}, {netip.MustParseAddrPort("10.0.0.2:80"), "b.example", 0, 0}, {netip.MustParseAddrPort("[::1]:80"), "b.example", 0, 0}})
	s.addKnown(s.now, s.names[Name{"s", 0}], []Address{{netip.MustParseAddrPort("10.0.0.3:81"), "t", 1, 7}, {netip.MustParseAddrPort("10.0.0.4:81"), "t", 1, 7}})
	s.asks("A b.example, AAAA b.example, SRV s, A t, AAAA t")
	s.fails("AAAA b.example")
	s.hears("A b.example", time.Minute, "10.0.0.2", "dns:b.example:80: 10.0.0.2:80 [::1]:80")
	s.fails("SRV s")
	s.hears("AAAA t", time.Minute, "", "")
	s.hears("A t", time.Minute, "10.0.0.4 10.0.0.5", "srv:s: 10.0.0.4:81/0/7 10.0.0.5:81/0/7")
	s.after(time.Second)
	s.asks("AAAA b.example, SRV s")
	s.hears("SRV s", time.Minute, "t:81/10/7", "")
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"dns:B.example.:80": "dns:b.example:80", "srv:_http._tcp.X": "srv:_http._tcp.x",
		"dns:b": "", "dns:b:0": "", "dns:b:70000": "", "dns:10.0.0.1:80": "", "dns:[::1]:80": "", "srv:": "", "b:80": "", "dns:a..b:1": "", "dns:a b:1": "", "srv:a/b": "",
		"srv:" + strings.Repeat("a", 64): "", "srv:" + strings.Repeat("a.", 128): "",
	} {
		n, err := Parse(text)
		if err == nil && n.String() != want || (err != nil) != (want == "") {
			t.Errorf("%s: %v, %v, want %q", text, n, err, want)
		}
	}
}

// While a record cannot be read, the others count, and all last addresses stay.
func TestUnreadableRecordRemovesNothing(t *testing.T) {
	t.Run("SAFE-17", func(t *testing.T) {
		s := tell(t, "dns:b.example:80")
		s.asks("A b.example, AAAA b.example")
		s.hears("A b.example", 10*time.Second, "10.0.0.1 10.0.0.2", "dns:b.example:80: 10.0.0.1:80 10.0.0.2:80")
		s.hears("AAAA b.example", time.Hour, "", "")
		bad := answer{records: []record{{addr: netip.MustParseAddr("10.0.0.2")}, {addr: netip.MustParseAddr("10.0.0.3")}}, ttl: time.Hour, bad: errors.New("record 1")}
		for i := range 3 {
			s.after(30 * time.Second)
			s.asks("A b.example")
			want := "dns:b.example:80: 10.0.0.1:80 10.0.0.2:80 10.0.0.3:80"
			if i > 0 {
				want = ""
			}
			is := s.outcome(s.answered(s.now, ofText("A b.example"), bad, nil), want)
			if is.failing != (i == 0) || !errors.Is(is.err, bad.bad) || is.recovered || is.missing {
				t.Errorf("%+v", is)
			}
		}
		s.after(4*time.Second - 1) // not after its TTL
		s.asks("")
		s.after(1)
		s.asks("A b.example")
		if is := s.hears("A b.example", 10*time.Second, "10.0.0.3", "dns:b.example:80: 10.0.0.3:80"); !is.recovered {
			t.Errorf("%+v", is)
		}
	})
}
