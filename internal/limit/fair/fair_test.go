package fair

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"testing"
)

func TestShares(t *testing.T) {
	t.Run("SAFE-9 a late owner gets the newest place of the owner with most", func(t *testing.T) {
		s := Shares[int]{Max: 4}
		for i := range 4 {
			if p, lost := s.Enter("greedy", nil, i); p == nil || lost.OK {
				t.Fatal(i, p, lost)
			}
		}
		if p, lost := s.Enter("other", nil, 10); p == nil || lost != (Evicted[int]{3, true}) {
			t.Fatal(p, lost)
		}
		if p, lost := s.Enter("third", nil, 20); p == nil || lost != (Evicted[int]{2, true}) {
			t.Fatal(p, lost)
		}
		if p, lost := s.Enter("greedy", nil, 4); p != nil || lost.OK {
			t.Error("the owner with most evicts the item of another:", p, lost)
		}
		if p, lost := s.Enter("fourth", nil, 30); p == nil || lost != (Evicted[int]{1, true}) {
			t.Fatal(p, lost)
		}
		if p, lost := s.Enter("fifth", nil, 40); p != nil || lost.OK {
			t.Error("the evicted owner had no more items than the new one:", p, lost)
		}
		if s.Len() != 4 {
			t.Error(s.Len())
		}
	})
	t.Run("SAFE-9 a single owner may have all places, as behind a NAT", func(t *testing.T) {
		s := Shares[int]{Max: 100_000}
		var last *Place[int]
		for i := range s.Max {
			if last, _ = s.Enter("nat", nil, i); last == nil {
				t.Fatal(i)
			}
		}
		if p, lost := s.Enter("nat", nil, 0); p != nil || lost.OK {
			t.Error(p, lost)
		}
		s.Leave(last)
		s.Leave(last)
		if s.Len() != s.Max-1 {
			t.Error(s.Len())
		}
		if p, _ := s.Enter("nat", nil, 0); p == nil {
			t.Error("a place that was given back cannot be had")
		}
	})
	t.Run("without room", func(t *testing.T) {
		var s Shares[int]
		if p, lost := s.Enter("a", nil, 1); p != nil || lost.OK {
			t.Error(p, lost)
		}
	})
}

// Shares agree with a simple list of all items.
func TestSharesQuick(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		s := Shares[int]{Max: 1 + r.IntN(12)}
		type held struct {
			name  string
			thing int
			place *Place[int]
		}
		var all []held // in the order of arrival
		count := func(name string) (n int) {
			for _, h := range all {
				if h.name == name {
					n++
				}
			}
			return n
		}
		for i := range 300 {
			if len(all) > 0 && r.IntN(3) == 0 {
				k := r.IntN(len(all))
				s.Leave(all[k].place)
				all = slices.Delete(all, k, k+1)
				continue
			}
			name := strconv.Itoa(r.IntN(5))
			most, full := 0, len(all) == s.Max
			for _, h := range all {
				most = max(most, count(h.name))
			}
			room := s.Room(name, nil)
			p, lost := s.Enter(name, nil, i)
			if room != (p != nil) {
				t.Fatalf("seed %d: room %v, and got a place: %v", seed, room, p != nil)
			}
			switch {
			case !full:
				if p == nil || lost.OK {
					t.Fatalf("seed %d: there is room, and %v lost", seed, lost)
				}
			case count(name)+1 >= most:
				if p != nil || lost.OK {
					t.Fatalf("seed %d: %s has %d of %d, and got a place", seed, name, count(name), most)
				}
			default:
				k := slices.IndexFunc(all, func(h held) bool { return h.thing == lost.Item })
				if p == nil || !lost.OK || k < 0 || count(all[k].name) != most {
					t.Fatalf("seed %d: lost %v, %v", seed, lost, all)
				}
				for _, h := range all[k+1:] {
					if h.name == all[k].name {
						t.Fatalf("seed %d: %v lost, and %v is newer", seed, all[k], h)
					}
				}
				s.Leave(all[k].place) // an item may leave at any time
				all = slices.Delete(all, k, k+1)
			}
			if p != nil {
				all = append(all, held{name, i, p})
			}
			if s.Len() != len(all) {
				t.Fatalf("seed %d: %d, want %d", seed, s.Len(), len(all))
			}
		}
	}
}

// A text is an address with this String.
type text string

func (text) Network() string  { return "tcp" }
func (a text) String() string { return string(a) }

func TestOwner(t *testing.T) {
	for _, c := range []struct {
		a    net.Addr
		want string
	}{
		{&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 2}, "192.0.2.1"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3::4"), Port: 3}, "2001:db8:1:2::/64"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 3, Zone: "eth0"}, "fe80::/64"},
		{&net.UnixAddr{Name: "", Net: "unix"}, "unix"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3::4"), Port: 3, Zone: "eth0"}, "2001:db8:1:2::/64"},
		{text("[::ffff:192.0.2.1]:2"), "192.0.2.1"}, // an address of another type
		{nil, ""},
	} {
		if got := Owner(c.a); got != c.want {
			t.Errorf("%v: %q, want %q", c.a, got, c.want)
		}
	}
}
