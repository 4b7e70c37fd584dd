package protocol

import (
	"fmt"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/scaling"
	"github.com/chancery-xds/chancery/xds"
)

// SAFE-9: "cheap per request whatever was asked before".

// These tests compare the cost of code for many names with the cost for few names.
var computing, grows = scaling.CPUTime, scaling.AtMost

// Names with unknown content from an earlier stream do not increase the cost of a commit, which is
// the number of names sent.
func TestUnknownContentIsCheap(t *testing.T) {
	run := func(n int) time.Duration {
		l := newLine(t, xds.SotW, nil, Options{}, xds.Tables{})
		views := []xds.Tables{{xds.Endpoint.URL: tableOf(xds.Endpoint, "one")}}
		views = append(views, xds.Tables{xds.Endpoint.URL: with(views[0][xds.Endpoint.URL], resources(2, "one"))})
		l.Change(views[0], nil)
		nonce := l.talk(xds.Request{Type: xds.Endpoint, Version: "unknown", Names: append([]string{"one"}, numbered(n)...)})
		l.talk(xds.Request{Type: xds.Endpoint, Nonce: nonce, SameNames: true})
		l.wait(4 * silence)
		return computing(func() {
			for i := range 50 {
				l.Change(views[(i+1)&1], []xds.Names{{xds.Endpoint.URL: {"one"}}})
				for r := range l.Responses() {
					nonce = r.Nonce
				}
				l.talk(xds.Request{Type: xds.Endpoint, Nonce: nonce, SameNames: true})
			}
		})
	}
	t.Run("SAFE-9", func(t *testing.T) {
		grows(t, 10, func() time.Duration { return run(500) }, func() time.Duration { return run(20_000) })
	})
}

// TTLs of resources without a subscription do not increase the cost of the client's answers.
func TestUnsubscribedTTLsAreCheap(t *testing.T) {
	run := func(n int) time.Duration {
		rs := resources(1, "plain")
		for _, name := range numbered(n) {
			r := resource(name, 1)
			r.TTL = time.Minute
			rs = append(rs, r)
		}
		l := newLine(t, xds.Delta, nil, Options{ForceTTL: true}, xds.Tables{xds.Endpoint.URL: with(xds.NewTable(xds.Endpoint), rs)})
		nonce := l.talk(xds.Request{Type: xds.Endpoint, Subscribe: []string{"plain"}})
		l.talk(xds.Request{Type: xds.Endpoint, Nonce: nonce}) // the table computes its list of TTLs once
		return computing(func() {
			for range 200 {
				l.talk(xds.Request{Type: xds.Endpoint, Nonce: nonce})
			}
		})
	}
	t.Run("SAFE-9", func(t *testing.T) {
		grows(t, 10, func() time.Duration { return run(100) }, func() time.Duration { return run(10_000) })
	})
}

// If a client drops a wildcard and subscribes again, the cost is the size of the responses. The
// session makes no record for each name in flight, even if the client answers nothing.
func TestWildcardAgainIsCheap(t *testing.T) {
	for _, v := range []xds.Variant{xds.Delta, xds.SotW} {
		for _, typ := range []*xds.Type{xds.Cluster, xds.Endpoint} {
			t.Run(fmt.Sprintf("SAFE-9 %v %s", v, typ), func(t *testing.T) {
				run := func(n int) uint64 {
					l := newLine(t, v, nil, Options{}, xds.Tables{typ.URL: tableOf(typ, append(numbered(n), "one")...)})
					l.talk(xds.Request{Type: typ, Names: []string{"*"}, Subscribe: []string{"*"}})
					again := func() {
						for range 10 {
							l.talk(xds.Request{Type: typ, Names: []string{"one"}, Unsubscribe: []string{"*"}})
							l.talk(xds.Request{Type: typ, Names: []string{"*"}, Subscribe: []string{"*"}})
						}
					}
					again() // the list of unanswered responses is full then
					return countBytes(again)
				}
				if few, many := run(100), run(10_000); many > few+50_000 {
					t.Errorf("few names take %d bytes, many take %d", few, many)
				}
			})
		}
	}
}

// Recent is called once, for any number of stated names.
func TestStatedNamesAreCheap(t *testing.T) {
	for _, n := range []int{1, 1000} {
		t.Run(fmt.Sprint("SAFE-9 ", n), func(t *testing.T) {
			asked := 0
			lately := []*xds.Table{tableOf(xds.Cluster, "a")}
			l := newLine(t, xds.Delta, nil, Options{Recent: func(*xds.Type) []*xds.Table { asked++; return lately }}, xds.Tables{xds.Cluster.URL: lately[0]})
			var initial []xds.Version
			for _, name := range numbered(n) {
				initial = append(initial, xds.Version{Name: name, Version: "other"})
			}
			if err := l.Receive(xds.Request{Type: xds.Cluster, Subscribe: []string{xds.Wildcard}, Initial: initial}); err != nil {
				t.Fatal(err)
			}
			if asked != 1 {
				t.Errorf("%d times", asked)
			}
		})
	}
}
