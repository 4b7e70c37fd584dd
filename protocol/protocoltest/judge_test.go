package protocoltest

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// TestJudge checks that the judge finds faulty sessions, and that it accepts the same sessions without the fault.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault faulty
		want  string // in the failure of some world
	}{
		{"no fault", faulty{}, ""},
		{"SOTW-2 a nonce twice", faulty{respond: func(r *xds.Response) { r.Nonce = "1" }}, "SOTW-2"},
		{"SOTW-3 each ACK is stale", faulty{event: func(e *protocol.Event) bool {
			if e.Kind == protocol.Acked {
				e.Kind = protocol.Stale
			}
			return true
		}}, "SOTW-3"},
		{"SOTW-8 a full state lacks a resource", faulty{respond: func(r *xds.Response) { r.Upserts = r.Upserts[min(len(r.Upserts), 1):] }}, "SOTW-8"},
		{"SOTW-9 an unrequested resource", faulty{respond: func(r *xds.Response) {
			r.Upserts = append(slices.Clip(r.Upserts), xds.NewResource(r.Type, "alien", nil))
		}}, "SOTW-9"},
		{"SOTW-13 another version", faulty{respond: func(r *xds.Response) { r.Version += "x" }}, "SOTW-13"},
		{"SOTW-14 a resource twice", faulty{respond: func(r *xds.Response) { r.Upserts = slices.Concat(r.Upserts, r.Upserts) }}, "SOTW-14"},
		{"a change is not sent", faulty{respond: func(r *xds.Response) { r.Upserts = r.Upserts[min(len(r.Upserts), 1):] }}, "must be sent"},
		{"a removal is not sent", faulty{batch: func(rs []*xds.Response) []*xds.Response {
			return slices.DeleteFunc(rs, func(r *xds.Response) bool { return len(r.Removed) > 0 })
		}, event: func(e *protocol.Event) bool { return e.Kind != protocol.Sent || e.Removed == 0 }}, "must be removed"},
		{"DELTA-15 a response again", faulty{batch: func(rs []*xds.Response) []*xds.Response {
			for _, r := range rs[:min(len(rs), 1)] {
				again := *r
				again.Nonce += "again"
				rs = append(rs, &again)
			}
			return rs
		}}, "DELTA-15"},
		{"TTL-1 no TTL", faulty{respond: func(r *xds.Response) { r.TTL = false }}, "TTL-1"},
		{"TTL-3 no heartbeats", faulty{batch: func(rs []*xds.Response) []*xds.Response {
			return slices.DeleteFunc(rs, func(r *xds.Response) bool { return len(r.Beats) > 0 })
		}, event: func(e *protocol.Event) bool { return e.Kind != protocol.Sent || e.Beats == 0 }}, "TTL-3"},
		{"ADS-2 routes before clusters", faulty{batch: func(rs []*xds.Response) []*xds.Response {
			slices.Reverse(rs)
			return rs
		}}, "ADS-2: news of"},
		{"ADS-2 removals before news", faulty{batch: func(rs []*xds.Response) []*xds.Response {
			slices.SortStableFunc(rs, func(a, b *xds.Response) int { return cmp.Compare(len(b.Removed), len(a.Removed)) })
			return rs
		}}, "news after removals"},
		{"ADS-3 a removal waits too long", faulty{slow: true}, "must be removed"},
		{"DELTA-7 an absence at once", faulty{unnamed: true}, "DELTA-7: "},
		{"ADS-3 a route before its cluster", faulty{blind: true}, "ADS-3: "},
		{"ADS-8 a cluster leaves before its route", faulty{blind: true}, "ADS-3, ADS-8: "},
		{"ADS-10 an aggregate before its member", faulty{inside: true}, "not sent yet"},
		{"ADS-4 a removal of what exists", faulty{respond: func(r *xds.Response) {
			for _, x := range r.Upserts {
				r.Removed = append(slices.Clip(r.Removed), x.Name)
			}
			r.Upserts = nil
		}}, "ADS-4: removes"},
		{"gRFC A88 an existing name is missing", faulty{respond: func(r *xds.Response) {
			for _, x := range r.Upserts {
				r.Missing = append(slices.Clip(r.Missing), x.Name)
			}
		}}, "gRFC A88"},
		{"a response without an event", faulty{event: func(e *protocol.Event) bool { return e.Kind != protocol.Sent }}, "without an event"},
		{"no deadline", faulty{deadline: func(time.Time) time.Time { return time.Time{} }}, "no deadline"},
		{"a change with a hint is ignored", faulty{deaf: true}, "without hints"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var found []string
			for seed := range uint64(150) {
				_, err := Simulate(opens(c.fault), Config{Seed: seed / 2, Variant: []xds.Variant{xds.SotW, xds.Delta}[seed%2]})
				if f, failed := errors.AsType[*Failure](err); failed {
					found = append(found, f.Err.Error())
				}
				if c.want != "" && err != nil && strings.Contains(found[len(found)-1], c.want) {
					return
				}
			}
			if c.want != "" || len(found) > 0 {
				t.Errorf("no world fails with %q, but %d with %q", c.want, len(found), found[:min(len(found), 3)])
			}
		})
	}
}
