package endpoints

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A bad member of a complete list does not spoil the list, and does not count as removed.
func TestBadMemberOfAList(t *testing.T) {
	x := Cluster{Name: "x"}
	named := func(id string, n int) Registered { e := at(n); e.ID = id; return e }
	with := func(e Registered, change func(*Registered)) Registered { change(&e); return e }
	noPort := func(e *Registered) { e.Port = 0 }
	heavy := func(e *Registered) { e.Weight = 1 << 30 }
	noAddress := func(e *Registered) { e.Address = "backend.example.com" }
	unread := func(e *Registered) { *e = Registered{Bad: &FieldError{"", "not an endpoint"}} }
	was := []Registered{named("a", 1), named("b", 2), at(3)}
	for what, c := range map[string]struct {
		list []Registered
		want string
		bad  string // fields
	}{
		"SAFE-17 by its ID":                {[]Registered{named("a", 1), with(named("b", 2), noAddress)}, "a b", "[1].address"},
		"SAFE-17 by its address":           {[]Registered{named("a", 1), with(at(3), heavy)}, "10.0.0.4:80 a", "[1].weight"},
		"SAFE-17 by address of other ID":   {[]Registered{named("a", 1), with(named("new", 2), heavy)}, "a b", "[1].weight"},
		"SAFE-17 without a port":           {[]Registered{named("a", 1), with(at(3), noPort)}, "10.0.0.4:80 a", "[1].port"},
		"SAFE-17 of no known address":      {[]Registered{named("a", 1), with(at(9), noAddress)}, "10.0.0.4:80 a b", "[1].address"},
		"SAFE-17 unspecified":              {[]Registered{named("a", 1), with(at(9), func(e *Registered) { e.Address = "::" })}, "10.0.0.4:80 a b", "[1].address"},
		"SAFE-17 unreadable":               {[]Registered{named("a", 1), with(at(9), unread)}, "10.0.0.4:80 a b", "[1]"},
		"SAFE-17 a new one":                {[]Registered{named("a", 1), with(at(9), heavy)}, "a", "[1].weight"},
		"SAFE-17 locality":                 {[]Registered{named("a", 1), with(named("b", 2), func(e *Registered) { e.Locality.Zone = "\x00" })}, "a b", "[1].locality.zone"},
		"SAFE-17 two of four":              {[]Registered{with(named("b", 2), heavy), named("a", 1), at(7), with(at(3), heavy)}, "10.0.0.4:80 10.0.0.8:80 a b", "[0].weight [3].weight"},
		"SAFE-17 the same ID twice":        {[]Registered{named("a", 1), named("a", 2)}, "a b", "[1].id"},
		"SAFE-17 the same address twice":   {[]Registered{named("a", 1), named("c", 1)}, "a c", ""},
		"SAFE-17 address of a good one":    {[]Registered{named("c", 1), with(named("d", 1), heavy)}, "c", "[1].weight"},
		"SAFE-17 all are bad":              {[]Registered{with(at(1), heavy), with(at(2), noPort)}, "10.0.0.4:80 a b", "refused"},
		"SAFE-17 longer than is allowed":   {[]Registered{at(1), at(2), at(3), at(4), at(5)}, "10.0.0.4:80 a b", "refused"},
		"SAFE-17 no room with kept ones":   {[]Registered{at(11), at(12), with(at(13), unread)}, "10.0.0.4:80 a b", "refused"},
		"an empty list removes all":        {nil, "", ""},
		"an ID alone is enough to be kept": {[]Registered{named("a", 1), {ID: "b", Bad: &FieldError{"port", "is text"}}}, "a b", "[1].port"},
	} {
		t.Run(what, func(t *testing.T) {
			for _, stream := range []bool{false, true} {
				r := start(t, "", Options{PerCluster: 4})
				if _, err := r.Put(t.Context(), x, was, 0); err != nil {
					t.Fatal(err)
				}
				var err error
				if stream {
					s, wrong := r.Session(0)
					if wrong != nil {
						t.Fatal(wrong)
					}
					errs, wrong := s.Apply(t.Context(), []Op{{Cluster: x, Replace: append([]Registered{}, c.list...)}})
					if wrong != nil {
						t.Fatal(wrong)
					}
					err = errs[0]
				} else {
					_, err = r.Replace(t.Context(), x, c.list, 0)
				}
				var bad []string
				if some, ok := errors.AsType[BadMembers](err); ok {
					for _, one := range some {
						bad = append(bad, strings.TrimPrefix(one.Field, "endpoints"))
					}
				} else if err != nil {
					bad = []string{"refused"}
				}
				var ids []string
				for _, e := range r.List("", "x")[0].Endpoints {
					ids = append(ids, e.ID)
				}
				slices.Sort(ids)
				if got := strings.Join(ids, " "); got != c.want || strings.Join(bad, " ") != c.bad {
					t.Errorf("stream %v: %s, %v, want %s, %s", stream, got, err, c.want, c.bad)
				}
			}
		})
	}
}

// SAFE-17: a bad member keeps its content, and has the lease of its list: each list renews it, and writes nothing.
func TestBadMemberKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, "", Options{})
		defer r.stop()
		x, was := Cluster{Name: "x"}, at(2)
		was.Weight, was.Metadata = 7, map[string]map[string]any{"envoy.lb": {"canary": true}}
		bad := at(2)
		bad.Weight = -1
		if _, err := r.Replace(t.Context(), x, []Registered{at(1), was}, time.Minute); err != nil {
			t.Fatal(err)
		}
		for i, ttl := range []time.Duration{time.Minute, time.Minute, time.Hour, time.Hour} {
			res, err := r.Replace(t.Context(), x, []Registered{at(1), bad}, ttl)
			want := Result{Unchanged: 2}
			if i == 2 {
				want = Result{Set: 2}
			}
			if some, ok := errors.AsType[BadMembers](err); !ok || len(some) != 1 || res != want {
				t.Fatal(i, res, err)
			}
			time.Sleep(40 * time.Second)
			synctest.Wait()
		}
		got := r.List("", "x")[0].Endpoints
		if len(got) != 2 || got[1].Weight != 7 || got[1].TTL != time.Hour || fmt.Sprint(got[1].Metadata) != "map[envoy.lb:map[canary:true]]" {
			t.Errorf("%+v", got)
		}
		if _, err := r.Replace(t.Context(), x, []Registered{at(1), bad}, 0); err == nil {
			t.Error("no error")
		}
		if got := r.List("", "x")[0].Endpoints; len(got) != 2 || got[0].TTL != 0 || got[1].TTL != time.Hour { // a list without a lease takes none away
			t.Errorf("%+v", got)
		}
	})
}
