package explain

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// quarantined makes a client accept all resources except one. That resource goes into quarantine.
func quarantined(r *fixture, c *xdstest.Client) {
	r.deps.Held = func(_ *server.Stream, t *xds.Type) []quarantine.Held {
		if !t.Is(xds.Cluster) {
			return nil
		}
		return []quarantine.Held{{Name: "bad", Refused: "v2"}}
	}
	r.Explainer = New(r.deps)
	takes(c, xds.Cluster)
}

// Without a name, each broken link of the chain names the first resource with that problem.
func TestExplainClient(t *testing.T) {
	bad := strings.Replace(cluster("bad"), "1s", "-1s", 1)
	for _, f := range []struct {
		name, what, broken string
		files              []string
		act                func(r *fixture, c *xdstest.Client)
		says               []string
	}{
		{
			name: "well", files: []string{"c.yaml", resources(cluster("a"))},
			act:  func(_ *fixture, c *xdstest.Client) { takes(c, xds.Cluster) },
			says: []string{"selected: ok: the node gets group default", "subscribed: ok: the client subscribes to all CDS", "accepted: ok: the client has accepted what it was sent: CDS"},
		},
		{
			name: "refuses", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), bad)},
			act: func(_ *fixture, c *xdstest.Client) {
				c.Subscribe(xds.Cluster)
				c.NACK(c.Next(xds.Cluster), "Invalid duration: Expected positive duration: seconds: -1")
			},
			says: []string{`the client refused CDS 0 s ago, because of CDS "bad": resources[1].connect_timeout: must be more than 0s, not -1s; it says: Invalid duration`, "[c.yaml:7:20]"},
		},
		{
			name: "keeps to what it had of one in quarantine", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), bad)}, act: quarantined,
			says: []string{`the client refused CDS, because of CDS "bad": resources[1].connect_timeout: must be more than 0s, not -1s; it says: `, "[c.yaml:7:20]", `correct CDS "bad" (c.yaml:7:20)`},
		},
		{
			name: "the same, of the type", what: "CDS", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), bad)}, act: quarantined,
			says: []string{`because of CDS "bad"`, "[c.yaml:7:20]"},
		},
		{
			name: "a subscription to a missing resource", broken: defined, files: []string{"c.yaml", resources(cluster("a")), "l.yaml", resources(httpListener("l", "r")), "r.yaml", resources(route("rr", "a"))},
			act: func(_ *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				takes(c, xds.Listener)
				c.Subscribe(xds.Route, "r")
			},
			says: []string{`the client subscribes to resources that the node does not get: RDS "r" [l.yaml:12:34]`, `did you mean "rr"?`},
		},
		{
			name: "a subscription to a missing resource without a similar one", broken: defined, files: []string{"c.yaml", resources(cluster("a"))},
			act: func(_ *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				c.Subscribe(xds.Secret, "web")
			},
			says: []string{"advice: define it, or correct what refers to it: chancery explain edge-1 SDS/web"},
		},
		{
			name: "refuses several types, with a remaining subscription", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), bad), "l.yaml", resources(httpListener("l", "r")), "r.yaml", resources(route("r", "a"))},
			act: func(_ *fixture, c *xdstest.Client) {
				c.Subscribe(xds.Secret, "web")
				for _, t := range []*xds.Type{xds.Cluster, xds.Route, xds.Listener} {
					if t.Is(xds.Route) {
						c.Subscribe(t, "r")
					} else {
						c.Subscribe(t)
					}
					c.NACK(c.Next(t), "no")
				}
			},
			says: []string{"defined: BROKEN: ", "accepted: BROKEN: the client refused CDS 0 s ago, because of CDS \"bad\"", `; it also refuses LDS "l" (l.yaml:2:3), RDS "r" (r.yaml:2:3)`, "advice: correct CDS \"bad\" (c.yaml:7:20)"},
		},
		{
			name: "a route to a missing cluster", broken: references, files: []string{"c.yaml", resources(cluster("a")), "l.yaml", resources(httpListener("l", "r")), "r.yaml", resources(route("r", "aa"))},
			act: func(_ *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				takes(c, xds.Listener)
				takes(c, xds.Route, "r")
			},
			says: []string{`references: BROKEN: RDS "r" refers to CDS "aa", which the node does not get (did you mean "a"?), unless the client has it from its bootstrap [r.yaml:10:18]`, `advice: define CDS "aa", or correct the reference at r.yaml:10:18`},
		},
		{
			name: "a listener whose route has no cluster", what: "LDS l", broken: references, files: []string{"c.yaml", resources(cluster("a")), "l.yaml", resources(httpListener("l", "r")), "r.yaml", resources(route("r", "aa"))},
			act: func(_ *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				takes(c, xds.Listener)
				takes(c, xds.Route, "r")
			},
			says: []string{"valid: ok", "accepted: ok", `references: BROKEN: it refers to RDS "r", which refers to CDS "aa", which the node does not get`, "[r.yaml:10:18]"},
		},
		{
			name: "a route to a missing cluster, to which the client does not subscribe", files: []string{"c.yaml", resources(cluster("a")), "r.yaml", resources(route("r", "aa"))},
			act:  func(_ *fixture, c *xdstest.Client) { takes(c, xds.Cluster) },
			says: []string{"accepted: ok"},
		},
		{
			name: "HEAL-5 refuses a response, and its text names no resource", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), cluster("b"))},
			act: func(_ *fixture, c *xdstest.Client) {
				c.Subscribe(xds.Cluster)
				c.NACK(c.Next(xds.Cluster), "no")
			},
			says: []string{"the client refused CDS 0 s ago; which of 2 resources is faulty is unknown; it says: no"},
		},
		{
			name: "HEAL-5 refuses a response, and its text names no resource, with a known fault", broken: accepted, files: []string{"c.yaml", resources(cluster("a"), strings.Replace(cluster("b"), "1s", "-1s", 1))},
			act: func(_ *fixture, c *xdstest.Client) {
				c.Subscribe(xds.Cluster)
				c.NACK(c.Next(xds.Cluster), "no")
			},
			says: []string{`the client refused CDS 0 s ago, because of CDS "b": resources[1].connect_timeout: must be more than 0s, not -1s; it says: no`, "[c.yaml:7:20]"},
		},
		{
			name: "does not answer", broken: accepted, files: []string{"c.yaml", resources(cluster("a"))},
			act: func(r *fixture, c *xdstest.Client) {
				c.Subscribe(xds.Cluster)
				c.Next(xds.Cluster)
				r.late = time.Minute
			},
			says: []string{"the client has not answered a response of CDS (nonce 1), sent 60 s ago"},
		},
		{
			name: "does not answer, and there is news", broken: sent, files: []string{"c.yaml", resources(cluster("a"))},
			act: func(r *fixture, c *xdstest.Client) {
				c.Subscribe(xds.Cluster)
				c.Next(xds.Cluster)
				r.write("b.yaml", resources(cluster("b")))
				r.load("")
			},
			says: []string{"changes of CDS are not sent"},
		},
		{
			name: "a type that it has not opened", what: "LDS", broken: subscribed, files: []string{"c.yaml", resources(cluster("a"))},
			act:  func(_ *fixture, c *xdstest.Client) { takes(c, xds.Cluster) },
			says: []string{"the client has not subscribed to any LDS; it subscribes to CDS"},
		},
		{
			name: "the files are not loaded", broken: loaded, files: []string{"c.yaml", resources(cluster("a"))},
			act: func(r *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				r.write("n.yaml", resources(cluster("new")+"  typo: 1\n"))
				r.load("typo")
			},
			says: []string{"the served configuration is older than the files", "[n.yaml:5:3"},
		},
		{
			name: "the file of its group is gone", broken: loaded, files: []string{"c.yaml", resources(cluster("a")), "pay/group.yaml", "on_error: alone\nmatch: {id: edge-1}\n", "pay/c.yaml", resources(cluster("p"))},
			act: func(r *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				r.remove("pay/group.yaml")
				r.load("")
			},
			says: []string{`the served configuration is older than the files: the load was rejected 0 s ago: group "pay": group "pay": pay/group.yaml is gone`, "advice: restore the removed files; or, to confirm the removal, run chancery reload --allow-mass-delete"},
		},
		{
			name: "only another group is not loaded", files: []string{"c.yaml", resources(cluster("a")), "pay/group.yaml", "on_error: alone\nmatch: {id: pay}\n", "pay/c.yaml", resources(cluster("p"))},
			act: func(r *fixture, c *xdstest.Client) {
				takes(c, xds.Cluster)
				r.write("pay/n.yaml", resources(cluster("new")+"  typo: 1\n"))
				r.load("")
			},
			says: []string{"loaded: ok"},
		},
	} {
		within(t, f.name, func(t *testing.T) {
			r := start(t, f.files...)
			f.act(r, xdstest.SotW(r, r.conn, r.node("edge-1")))
			synctest.Wait()
			x, text := r.explain("edge-1", f.what)
			r.says(x, text, f.broken, f.says...)
		})
	}
}

// The faulty resource is found by the client's text and by the content of the refused resources.
func TestBlame(t *testing.T) {
	bad := func(name string) string { return strings.Replace(cluster(name), "1s", "-1s", 1) }
	wrong := func(name string, line int) api.Resource {
		return api.Resource{Type: "CDS", Name: name, Place: fmt.Sprintf("c.yaml:%d:20", line), Reason: fmt.Sprintf("resources[%d].connect_timeout: must be more than 0s, not -1s", (line-4)/3)}
	}
	late := bad("late")
	for _, f := range []struct {
		name, text string
		files      []string
		want       []api.Resource
	}{
		{
			"the text names none, one is known to be wrong", "Invalid duration: Expected positive duration: seconds: -1",
			[]string{"c.yaml", resources(cluster("a"), late)},
			[]api.Resource{{Type: "CDS", Name: "late", Place: "c.yaml:7:20", Reason: "resources[1].connect_timeout: must be more than 0s, not -1s"}},
		},
		{
			"the text names one that is good as far as is known", "Error adding/updating cluster(s) a: no such extension",
			[]string{"c.yaml", resources(cluster("a"), late)},
			[]api.Resource{{Type: "CDS", Name: "a", Place: "c.yaml:2:3"}},
		},
		{
			"the text quotes a value", "Error adding/updating cluster(s) a: Didn't find a registered implementation for 'envoy.nothing'",
			[]string{"c.yaml", resources(cluster("a")+"  transport_socket:\n    name: envoy.nothing\n", cluster("b"))},
			[]api.Resource{{Type: "CDS", Name: "a", Place: "c.yaml:6:11"}},
		},
		{
			"a word of the text is a name by accident", "the cluster has a bad timeout",
			[]string{"c.yaml", resources(cluster("a"), late)},
			[]api.Resource{{Type: "CDS", Name: "late", Place: "c.yaml:7:20", Reason: "resources[1].connect_timeout: must be more than 0s, not -1s"}},
		},
		{
			"many are known to be wrong", "no", []string{"c.yaml", resources(bad("a"), bad("b"), bad("c"), bad("d"), bad("e"), bad("f"))},
			[]api.Resource{wrong("a", 4), wrong("b", 7), wrong("c", 10), wrong("d", 13), wrong("e", 16)},
		},
		{
			"the text quotes its name", "Error adding cluster 'aaaa': no such extension", []string{"c.yaml", resources(cluster("aaaa"), cluster("b"))},
			[]api.Resource{{Type: "CDS", Name: "aaaa", Place: "c.yaml:2:3"}},
		},
		{"nothing is known", "no", []string{"c.yaml", resources(cluster("a"), cluster("b"))}, nil},
		{
			"there is one only", "no", []string{"c.yaml", resources(cluster("a"))},
			[]api.Resource{{Type: "CDS", Name: "a", Place: "c.yaml:2:3"}},
		},
		{
			"two of one name, of a type of which nobody knows what its name is", "duplicate filter a found",
			[]string{"c.yaml", resources("- "+ofFilter+"\n  name: a\n", "- \"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\n  name: b\n  resource:\n    "+ofFilter+"\n    name: a\n")},
			[]api.Resource{
				{Type: "Filter", Name: "a", Place: "c.yaml:3:9", Reason: `two resources have the value "a" in their field name`},
				{Type: "Filter", Name: "b", Place: "c.yaml:8:11", Reason: `two resources have the value "a" in their field name`},
			},
		},
		{
			"one of two is hidden by a group before its own", "duplicate cluster a found",
			[]string{"c.yaml", resources(cluster("a"), cluster("b")), "edge/group.yaml", "match: {id: edge-1}\ninclude: [default]\n", "edge/c.yaml", resources(cluster("a"))},
			[]api.Resource{{Type: "CDS", Name: "a", Place: "edge/c.yaml:2:3"}},
		},
	} {
		within(t, f.name, func(t *testing.T) {
			r := start(t, f.files...)
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			of := xds.Cluster
			if strings.Contains(f.text, "filter") {
				of = xds.TypeOf("type.googleapis.com/envoy.config.listener.v3.Filter")
			}
			c.Subscribe(of)
			c.NACK(c.Next(of), f.text)
			synctest.Wait()
			before := []api.Refusal{{Type: of.URL, Error: f.text, Nodes: []string{"edge-0", "edge-1"}}}
			after := r.Blame(context.Background(), before)
			for i := range after[0].Resources {
				p := &after[0].Resources[i].Place
				*p = strings.TrimPrefix(*p, r.dir+"/")
			}
			if got, want := fmt.Sprintf("%+v", after[0].Resources), fmt.Sprintf("%+v", f.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if before[0].Resources != nil {
				t.Error("Blame changed its argument")
			}
		})
	}
}

// The faulty resource is found while a newer response is unanswered. Faultless resources are cached, up to
// a limit.
func TestBlameWhileFixIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(by string) string { return strings.Replace(cluster("late"), "1s", by, 1) }
		r := start(t, "c.yaml", resources(cluster("a"), late("-1s")))
		c := xdstest.SotW(r, r.conn, r.node("edge-1"))
		c.Subscribe(xds.Cluster)
		c.NACK(c.Next(xds.Cluster), "no")
		r.write("c.yaml", resources(cluster("a"), late("-2s")))
		r.load("")
		c.Next(xds.Cluster) // without an answer
		synctest.Wait()
		got := r.Blame(context.Background(), []api.Refusal{{Type: "CDS", Error: "no", Nodes: []string{"edge-1"}}})[0].Resources
		if len(got) != 1 || got[0].Name != "late" || !strings.Contains(got[0].Reason, "-2s") {
			t.Errorf("%+v", got)
		}
		if len(r.faultless.all) != 1 {
			t.Errorf("%d resources in the cache of faultless ones, want 1", len(r.faultless.all))
		}
	})
	var s faultlessCache
	last := xds.NewResource(xds.Cluster, "a", nil)
	for i := range maxFaultless + 10 {
		last = xds.NewResource(xds.Cluster, "a", fmt.Append(nil, i))
		s.add(last)
	}
	if len(s.all) > maxFaultless || !s.has(last) {
		t.Errorf("%d are remembered", len(s.all))
	}
}

// The resources of a client are listed by name, worst first.
func TestClientResources(t *testing.T) { synctest.Test(t, clientResources) }

func clientResources(t *testing.T) {
	r := start(t, "c.yaml", resources(edsCluster("a"), cluster("b")), "e.yaml", resources(endpoints("a")), "l.yaml", resources(listener("l", "b")))
	c := xdstest.SotW(r, r.conn, r.node("edge-1"))
	takes(c, xds.Cluster)
	takes(c, xds.Endpoint, "a", "none")
	c.Subscribe(xds.Listener)
	c.NACK(c.Next(xds.Listener), "no")
	r.write("c.yaml", resources(edsCluster("a"), strings.Replace(cluster("b"), "1s", "2s", 1)))
	r.load("")
	c.Next(xds.Cluster)
	synctest.Wait()
	all := func(typ, name string, limit int) string {
		out, err := r.ClientResources(context.Background(), "edge-1", typ, name, limit)
		if err != nil {
			return err.Error()
		}
		var lines []string
		for _, i := range out.Items {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s %s", i.Type, i.Name, i.State, i.Why, strings.TrimPrefix(i.Place, r.dir+"/"), i.Error)))
		}
		return fmt.Sprintf("%d: %s", out.Total, strings.Join(lines, ", "))
	}
	for _, one := range []struct {
		typ, name string
		limit     int
		want      string
	}{
		{"", "", 0, "5: LDS l NACKED wildcard l.yaml:2:3 no, CDS b SENT wildcard c.yaml:7:3, EDS none NOT_SENT name, CDS a SYNCED wildcard c.yaml:2:3, EDS a SYNCED name e.yaml:2:3"},
		{"", "", 2, "5: LDS l NACKED wildcard l.yaml:2:3 no, CDS b SENT wildcard c.yaml:7:3"},
		{"eds", "", 0, "2: EDS none NOT_SENT name, EDS a SYNCED name e.yaml:2:3"},
		{xds.Cluster.URL, "a", 0, "1: CDS a SYNCED wildcard c.yaml:2:3"},
		{"RDS", "", 0, "0: "},
	} {
		if got := all(one.typ, one.name, one.limit); got != one.want {
			t.Errorf("%+v: got\n%s", one, got)
		}
	}
}

// Served resources are listed with their subscribers and without secrets.
func TestServed(t *testing.T) { synctest.Test(t, served) }

func served(t *testing.T) {
	const secret = `- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: s
  generic_secret: {secret: {inline_string: hunter22}}
`
	r := start(t, "c.yaml", resources(cluster("a"), cluster("b")), "edge/group.yaml", "match: {id: \"edge-*\"}\ninclude: [default]\n", "edge/c.yaml", resources(cluster("a"), secret))
	takes(xdstest.SotW(r, r.conn, r.node("edge-1")), xds.Cluster)
	takes(xdstest.Delta(r, r.conn, r.node("other")), xds.Cluster, "a")
	xdstest.SotW(r, r.conn, r.node("edge-2")).Subscribe(xds.Cluster)
	synctest.Wait()
	list := func(q Query) string {
		out, err := r.Served(context.Background(), q)
		if err != nil {
			return err.Error()
		}
		var lines []string
		for _, i := range out.Items {
			line := fmt.Sprintf("%s %s %s %s", i.Type, i.Name, i.Group, strings.TrimPrefix(i.Place, r.dir+"/"))
			if i.Clients != nil {
				line += fmt.Sprint(" ", i.Clients.Total, i.Clients.By)
			}
			lines = append(lines, strings.TrimSpace(line+" "+strings.ReplaceAll(string(i.Body), " ", "")))
		}
		return fmt.Sprintf("%d: %s", out.Total, strings.Join(lines, ", "))
	}
	for _, one := range []struct {
		q    Query
		want string
	}{
		{Query{}, "4: CDS a default c.yaml:2:3, CDS a edge edge/c.yaml:2:3, CDS b default c.yaml:5:3, SDS s edge edge/c.yaml:5:3"},
		{Query{Limit: 1}, "4: CDS a default c.yaml:2:3"},
		{Query{Limit: 1, Offset: 1}, "4: CDS a edge edge/c.yaml:2:3"},
		{Query{Offset: 5}, "4: "},
		{Query{Group: "edge", Type: "CDS"}, "1: CDS a edge edge/c.yaml:2:3"},
		{Query{Type: "CDS", Subscribers: true}, "3: CDS a default c.yaml:2:3 1 map[SYNCED:1], CDS a edge edge/c.yaml:2:3 2 map[SENT:1 SYNCED:1], CDS b default c.yaml:5:3 2 map[SENT:1 SYNCED:1]"},
		{Query{Type: "SDS", Name: "s", Body: true}, `1: SDS s edge edge/c.yaml:5:3 {"name":"s","generic_secret":{"secret":{"inline_string":"[redacted]"}}}`},
		{Query{Type: "CDS", Name: "c"}, `no group has CDS "c" (did you mean "a"?)`},
	} {
		if got := list(one.q); got != one.want {
			t.Errorf("%+v: got\n%s", one.q, got)
		}
	}
}

// A client that disconnects during the explanation is a broken link.
func TestClientLeavesMeanwhile(t *testing.T) { synctest.Test(t, leavesMeanwhile) }

func leavesMeanwhile(t *testing.T) {
	r := start(t, "c.yaml", resources(cluster("a")))
	c := xdstest.SotW(r, r.conn, r.node("edge-1"))
	takes(c, xds.Cluster)
	synctest.Wait()
	late := &staleTracker{tracker: r.seen, streams: r.seen.Streams("edge-1")}
	late.clients = r.seen.Client("edge-1")
	r.deps.Tracker = late
	r.Explainer = New(r.deps)
	c.Close()
	synctest.Wait()
	for _, what := range []string{"CDS a", "CDS", ""} {
		x, text := r.explain("edge-1", what)
		r.says(x, text, connected, "it left 0 s ago: it has just left")
	}
	if _, err := r.ClientResources(context.Background(), "edge-1", "", "", 0); err == nil {
		t.Error("no error for the resources of a disconnected client")
	}
}

// A staleTracker returns the clients as they were at an earlier time.
type staleTracker struct {
	*tracker
	streams []*server.Stream
	clients []api.Client
}

func (b *staleTracker) Streams(string) []*server.Stream { return b.streams }
func (b *staleTracker) Client(string) []api.Client      { return b.clients }

// Explaining one client with 10,000 resources takes less than 50 ms, or less than 50 ms of CPU time on a
// busy machine.
func BenchmarkExplain(b *testing.B) {
	var all, eps []string
	for i := range 10_000 {
		all, eps = append(all, edsCluster(fmt.Sprint("c", i))), append(eps, endpoints(fmt.Sprint("c", i)))
	}
	all[5000] = strings.Replace(all[5000], "1s", "-1s", 1)
	r := start(b, "c.yaml", resources(all...), "e.yaml", resources(eps...))
	c := xdstest.SotW(r, r.conn, r.node("edge-1"))
	c.Subscribe(xds.Cluster)
	c.NACK(c.Next(xds.Cluster), "Invalid duration: Expected positive duration: seconds: -1")
	d := xdstest.Delta(r, r.conn, r.node("edge-2"))
	takes(d, xds.Cluster)
	names := make([]string, len(eps))
	for i := range names {
		names[i] = fmt.Sprint("c", i)
	}
	takes(d, xds.Endpoint, names...)
	each := func(name string, ask func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			ask(b) // fills the cache of faultless resources
			before := cpuTime(b)
			for b.Loop() {
				ask(b)
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op")
		})
	}
	for _, one := range [][2]string{{"edge-1", "CDS c1"}, {"edge-1", "CDS c5000"}, {"edge-1", "CDS"}, {"edge-2", "CDS c1"}, {"edge-2", "EDS c1"}, {"edge-2", "CDS none"}, {"edge-1", ""}, {"edge-2", ""}} {
		each(strings.Join(one[:], " "), func(*testing.B) { r.explain(one[0], one[1]) })
	}
	each("resources", func(b *testing.B) {
		if _, err := r.ClientResources(context.Background(), "edge-2", "", "", 0); err != nil {
			b.Fatal(err)
		}
	})
}

// cpuTime returns the CPU time of the process, with garbage collection.
func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The faulty resources of a refusal whose client names none, or has left: first those with a known fault, with
// the place of the field; else all resources of the response.
func TestSuspects(t *testing.T) {
	within(t, "HEAL-5 a text that names nothing", func(t *testing.T) {
		r := start(t, "c.yaml", resources(cluster("a"), strings.ReplaceAll(cluster("bad"), "1s", "-1s"), cluster("c")))
		names := []string{"a", "bad", "c"}
		for text, want := range map[string]string{
			"Invalid duration: Expected positive duration: seconds: -1": "bad c.yaml:7:20",
			`cluster "bad" is wrong`:                                    "bad c.yaml:7:20",
		} {
			if got := r.Suspects(t.Context(), "gone", []string{store.DefaultGroup}, xds.Cluster, text, names); len(got) != 1 || got[0].Name+" "+filepath.Base(got[0].Place) != want {
				t.Errorf("%s: %+v, want %s", text, got, want)
			}
		}
		r.write("c.yaml", resources(cluster("a"), cluster("bad"), cluster("c")))
		r.load("")
		if got := r.Suspects(t.Context(), "gone", []string{store.DefaultGroup}, xds.Cluster, "no", names); len(got) != 3 || got[1].Name != "bad" || got[1].Place != "" {
			t.Errorf("%+v", got)
		}
		words := []string{"address", "good"} // the name address is also a word of the text
		if got := r.Faulty(t.Context(), []string{store.DefaultGroup}, xds.Cluster, "good: address in use", words); len(got) != 1 || got[0].Name != "good" {
			t.Errorf("of a quoted name and a word: %+v", got)
		}
		if got := r.Faulty(t.Context(), []string{store.DefaultGroup}, xds.Cluster, "no", names); got != nil {
			t.Errorf("%+v", got)
		}
	})
}

// On a relay, explain follows references to the end, too. It has no files, so the references of the explained
// resource itself count. A name about which the upstream has not answered is not missing.
func TestExplainReferencesOnRelay(t *testing.T) {
	listener, routes, gone := xds.Ref{Type: xds.Listener, Name: "http"}, xds.Ref{Type: xds.Route, Name: "local"}, xds.Ref{Type: xds.Cluster, Name: "gone"}
	for _, c := range []struct {
		what      string
		undecided bool
		says      string
	}{
		{"", false, `references: BROKEN: RDS "local" refers to CDS "gone", which the node does not get`},
		{"LDS http", false, `references: BROKEN: it refers to RDS "local", which refers to CDS "gone", which the node does not get`},
		{"RDS local", false, `references: BROKEN: RDS "local" refers to CDS "gone", which the node does not get`},
		{"", true, ""}, {"LDS http", true, ""}, {"RDS local", true, ""},
	} {
		within(t, fmt.Sprint(c.what, " ", c.undecided), func(t *testing.T) {
			r := start(t)
			if _, err := r.st.Update(func(tx *store.Tx) error {
				for _, x := range [][2]xds.Ref{{listener, routes}, {routes, gone}} {
					res := xds.NewResource(x[0].Type, x[0].Name, nil)
					res.Refs = []xds.Ref{x[1]}
					tx.Set(res)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			r.deps.Upstream = func() (string, bool) { return "xds://upstream:18000", true }
			r.deps.Undecided = func(typ *xds.Type, name string) bool { return c.undecided && typ == xds.Cluster && name == "gone" }
			r.Explainer = New(r.deps)
			client := xdstest.SotW(r, r.conn, r.node("edge-1"))
			takes(client, xds.Listener)
			client.Subscribe(xds.Route, "local")
			client.ACK(client.Next(xds.Route))
			synctest.Wait()
			x, text := r.explain("edge-1", c.what)
			broken, advice := references, `define CDS "gone" at the upstream, or correct the reference there`
			if c.says == "" {
				broken, advice = "", ""
			}
			if x.Broken != broken || x.Advice != advice || !strings.Contains(text, c.says) {
				t.Errorf("broken at %q, not at %q:\n%s", x.Broken, broken, text)
			}
		})
	}
}
