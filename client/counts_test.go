package client_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// counts is a Metrics that records its calls.
type counts struct {
	mu     sync.Mutex
	calls  []string
	gauges map[string]int
}

func (c *counts) call(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf(format, args...))
}

func (c *counts) ResourceUpdates(server, typ string, valid, invalid int) {
	c.call("%s %s valid %d invalid %d", server, typ[strings.LastIndexByte(typ, '.')+1:], valid, invalid)
}
func (c *counts) ServerFailure(server string) { c.call("%s failed", server) }
func (c *counts) Connected(server string, connected bool) {
	c.call("%s connected %v", server, connected)
}
func (c *counts) Resources(authority, state, typ string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gauges == nil {
		c.gauges = map[string]int{}
	}
	key := authority + " " + state + " " + typ[strings.LastIndexByte(typ, '.')+1:]
	if c.gauges[key] = n; n == 0 {
		delete(c.gauges, key)
	}
}

func (c *counts) want(t *testing.T, calls []string, gauges map[string]int) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Equal(c.calls, calls) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(c.calls, "\n"), strings.Join(calls, "\n"))
	}
	if fmt.Sprint(c.gauges) != fmt.Sprint(gauges) {
		t.Errorf("gauges %v, want %v", c.gauges, gauges)
	}
	c.calls = nil
}

func TestMetrics(t *testing.T) {
	both(t, "a type without a subscription makes no series", func(t *testing.T, v xds.Variant) {
		f, m := newFake(t, "xds://a", v), &counts{}
		c := begin(t, client.Config{Metrics: m}, f)
		watch(t, c, xds.Cluster, "a")
		s := f.stream()
		s.respond(xds.TypeOf("type.googleapis.com/evil.T1"), "v1", "a=1")
		s.respond(xds.Endpoint, "v1", "a=bad")
		s.respond(xds.Cluster, "v1", "a=1")
		m.want(t, []string{"xds://a connected true", "xds://a Cluster valid 1 invalid 0"}, map[string]int{"#old acked Cluster": 1})
	})

	both(t, "behaviour 54: updates, failures, connections, and resources by state (A78)", func(t *testing.T, v xds.Variant) {
		const xdstp = "xdstp://x/envoy.config.cluster.v3.Cluster/n"
		f, m := newFake(t, "xds://a", v), &counts{}
		c := begin(t, client.Config{Metrics: m, Authorities: map[string]client.Authority{"x": {}}}, f)
		m.want(t, nil, nil)
		watch(t, c, xds.Cluster, "a", "b", "c", "d")
		w := watch(t, c, xds.Cluster, xdstp)
		m.want(t, []string{"xds://a connected true"}, map[string]int{"#old requested Cluster": 4, "x requested Cluster": 1})
		s := f.stream()
		s.respond(xds.Cluster, "v1", "a=1", "b=bad", "c=1", xdstp+"=1")
		m.want(t, []string{"xds://a Cluster valid 3 invalid 1"}, map[string]int{"#old requested Cluster": 1, "#old acked Cluster": 2, "#old nacked Cluster": 1, "x acked Cluster": 1})
		s.respond(xds.Cluster, "v2", "a=1", "b=1", "c=bad", "!x", xdstp+"=1")
		m.want(t, []string{"xds://a Cluster valid 3 invalid 2"}, map[string]int{"#old requested Cluster": 1, "#old acked Cluster": 2, "#old nacked_but_cached Cluster": 1, "x acked Cluster": 1})
		time.Sleep(20 * time.Second)
		m.want(t, nil, map[string]int{"#old does_not_exist Cluster": 1, "#old acked Cluster": 2, "#old nacked_but_cached Cluster": 1, "x acked Cluster": 1})
		w.cancel()
		synctest.Wait()
		s.end(io.EOF) // behaviour 31: a stream that ends after a response is not a failure
		m.want(t, nil, map[string]int{"#old does_not_exist Cluster": 1, "#old acked Cluster": 2, "#old nacked_but_cached Cluster": 1})
		f.stream().end(errDown)
		m.want(t, []string{"xds://a failed", "xds://a connected false"}, map[string]int{"#old does_not_exist Cluster": 1, "#old acked Cluster": 2, "#old nacked_but_cached Cluster": 1})
		(<-f.opened).end(errDown) // the failure is known
		m.want(t, nil, map[string]int{"#old does_not_exist Cluster": 1, "#old acked Cluster": 2, "#old nacked_but_cached Cluster": 1})
		(<-f.opened).respond(xds.Cluster, "v3", "a=1", "b=1", "c=1")
		m.want(t, []string{"xds://a connected true", "xds://a Cluster valid 3 invalid 0"}, map[string]int{"#old does_not_exist Cluster": 1, "#old acked Cluster": 3})
	})

	both(t, "a panic of Metrics does not stop the client", func(t *testing.T, v xds.Variant) {
		f := newFake(t, "xds://a", v)
		c := begin(t, client.Config{Metrics: struct{ client.Metrics }{}}, f)
		w := watch(t, c, xds.Cluster, "a")
		f.stream().respond(xds.Cluster, "v1", "a=1")
		w.want("a updated=1")
	})
}

// The states for CSDS and status.
func TestDump(t *testing.T) {
	both(t, "behaviour 53: requested, absent, acked, and nacked with the refused version", func(t *testing.T, v xds.Variant) {
		c, f := one(t, v)
		watch(t, c, xds.Endpoint, "e")
		watch(t, c, xds.Cluster, "*", "good", "none", "old")
		s := f.stream()
		s.respond(xds.Cluster, "v1", "good=1", "old=1")
		s.respond(xds.Cluster, "v2", "good=1", "old=bad", "stray=bad stray", "other=1")
		time.Sleep(20 * time.Second)
		var got []string
		for _, st := range c.Dump() {
			res := ""
			if st.Resource != nil {
				res = "=" + textOf(st.Resource)
			}
			got = append(got, fmt.Sprintf("%s %s%s %s of %s %v %s", st.Type, st.Name, res, st.State, st.Server, st.Err, st.ErrVersion))
		}
		want := []string{
			"CDS good=1 acked of xds://a <nil> ", "CDS none timeout of xds://a <nil> ", "CDS old=1 nacked of xds://a bad ?",
			"CDS other=1 acked of xds://a <nil> ", "CDS stray nacked of xds://a bad stray ?", "EDS e timeout of xds://a <nil> ",
		}
		if len(got) != len(want) {
			t.Fatalf("%s", strings.Join(got, "\n"))
		}
		for i := range got {
			head, _, _ := strings.Cut(want[i], "?")
			if !strings.HasPrefix(got[i], head) {
				t.Errorf("%q, not %q", got[i], want[i])
			}
		}
		for range 3 { // each call returns the same number of states
			if n := len(c.Dump()); n != len(want) {
				t.Error(n)
			}
		}
	})
}
