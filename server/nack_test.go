package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/chancery-xds/chancery/internal/logs/dedup"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// lines returns the lines of a log that contain a text.
func (l *logbook) lines(text string) (found []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// ofNode subscribes to all clusters, and returns the stream and the response.
func (w *world) ofNode(t *testing.T, id string) (*sotwClient, *discovery.DiscoveryResponse) {
	t.Helper()
	c := w.sotw(t, w.dial(t))
	c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Cluster.URL, Node: &corev3.Node{Id: id}})
	return c, c.want()
}

func TestNackLine(t *testing.T) {
	many := 20_000 // made-up nodes
	if raceEnabled {
		many = 1500 // the race detector is ten times as slow
	}
	within(t, "OBS-1 a NACK line names resources and their places", func(t *testing.T) {
		places := WithPlaces(func(n *xds.Node, typ *xds.Type, name string) string {
			if name == "a" {
				return "" // unknown
			}
			return fmt.Sprintf("%s/%s.yaml:%s:1", n.ID, typ.Short, name)
		})
		w := serve(t, places)
		w.set(xds.Cluster, res("a", "1"), res("b", "1"), res("c", "1"))
		c, r := w.ofNode(t, "n")
		c.send(nack(r, "Error adding/updating cluster(s) c: no"))
		synctest.Wait()
		lines := w.log.lines("client refused a response (NACK)")
		if len(lines) != 1 || !strings.Contains(lines[0], `node=n type=CDS resources="[c `) || !strings.Contains(lines[0], `at="[n/CDS.yaml:c:1 n/CDS.yaml:b:1]"`) {
			t.Error(lines)
		}
	})
	within(t, "OBS-1 HEAL-5 a NACK line has the faulty resources alone, if they are known", func(t *testing.T) {
		asked := ""
		suspects := WithSuspects(func(n *xds.Node, typ *xds.Type, names []string, text string) []Suspect {
			asked = fmt.Sprint(n.ID, " ", typ.Short, " ", slices.Sorted(slices.Values(names)), " ", text)
			if text == "unknown" {
				return nil
			}
			return []Suspect{{"b", "b.yaml:5:3"}}
		})
		w := serve(t, suspects)
		w.set(xds.Cluster, res("a", "1"), res("b", "1"), res("c", "1"))
		c, r := w.ofNode(t, "n")
		c.send(nack(r, "no"))
		synctest.Wait()
		lines := w.log.lines("client refused a response (NACK)")
		if len(lines) != 1 || !strings.Contains(lines[0], "type=CDS resources=[b] at=[b.yaml:5:3] version=") || asked != "n CDS [a b c] no" {
			t.Error(asked, lines)
		}
		w.set(xds.Cluster, res("a", "2"))
		c.send(nack(c.want(), "unknown"))
		synctest.Wait()
		lines = w.log.lines("client refused a response (NACK)")
		if len(lines) != 2 || !strings.Contains(lines[1], `]" at=[] one_of=3 version=`) {
			t.Error(lines)
		}
	})
	within(t, "OBS-2 HEAL-5 a line that counts NACKs says since when", func(t *testing.T) {
		w := serve(t)
		began := time.Now()
		w.set(xds.Cluster, res("a", "1"))
		c, r := w.ofNode(t, "n")
		c.send(nack(r, "a: no"))
		time.Sleep(2 * time.Second)
		w.set(xds.Cluster, res("a", "2"))
		c.send(nack(c.want(), "a: no"))
		last := time.Now()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		lines := w.log.lines("client refused a response (NACK)")
		want := "repeated=1 since=" + began.Format(time.RFC3339) + "  last=" + last.Format(time.RFC3339)
		want = strings.ReplaceAll(want, "  ", " ")
		line := ""
		for _, l := range lines {
			if strings.Contains(l, "level=WARN") && strings.Contains(l, "repeated=1") {
				line = regexp.MustCompile(`(:\d\d)\.\d+`).ReplaceAllString(l, "$1")
			}
		}
		if !strings.Contains(line, want) || strings.Contains(line, "one_of") {
			t.Errorf("%q, want %q", lines, want)
		}
	})
	within(t, "OBS-1 SAFE-6 of a secret the line has name and place", func(t *testing.T) {
		w := serve(t, WithPlaces(func(*xds.Node, *xds.Type, string) string { return "keys.yaml:7:1" }))
		w.set(xds.Secret, res("key", "1"))
		c := w.sotw(t, w.dial(t))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Secret.URL, ResourceNames: []string{"key"}})
		c.send(nack(c.want(), "bad key MIIE", "key"))
		synctest.Wait()
		if log := w.log.String(); !strings.Contains(log, "resources=[key] at=[keys.yaml:7:1]") || !strings.Contains(log, withheld) || strings.Contains(log, "MIIE") {
			t.Error(log)
		}
	})
	within(t, "SAFE-6 a text goes through a redactor", func(t *testing.T) {
		var asked []string
		redact := WithRedactor(func(n *xds.Node, typ *xds.Type, text string) (string, bool) {
			asked = append(asked, n.ID+" "+typ.Short)
			return strings.ReplaceAll(text, "hunter2", "***"), !strings.Contains(text, "MIIE")
		})
		var o witness
		w := serve(t, redact, WithObserver(&o))
		w.set(xds.Cluster, res("a", "1"))
		c, r := w.ofNode(t, "n")
		c.send(nack(r, "bad: hunter2, and "+strings.Repeat("x", maxFailure)+"MIIE"))
		synctest.Wait()
		if line := w.log.lines("client refused a response (NACK)"); len(line) != 1 || !strings.Contains(line[0], `"bad: ***, and `) {
			t.Error(line)
		}
		w.set(xds.Cluster, res("a", "2"))
		c.send(nack(c.want(), "MIIE hunter2"))
		synctest.Wait()
		w.set(xds.Cluster, res("a", "3"))
		c.send(nack(c.want(), ""))
		w.set(xds.Secret, res("key", "1"))
		c.send(&discovery.DiscoveryRequest{TypeUrl: xds.Secret.URL, ResourceNames: []string{"key"}})
		c.send(nack(c.want(), "hunter2", "key"))
		synctest.Wait()
		if got := fmt.Sprint(asked); got != "[n CDS n CDS]" {
			t.Error(got)
		}
		if got := strings.Join(o.nacks[1:], "|"); got != withheld+"||"+withheld || !strings.HasPrefix(o.nacks[0], "bad: ***") {
			t.Error(o.nacks)
		}
	})
	within(t, "SAFE-9 a redactor is asked when there is a line to write, and no more", func(t *testing.T) {
		var asked atomic.Int64
		redact := WithRedactor(func(_ *xds.Node, _ *xds.Type, text string) (string, bool) {
			asked.Add(1)
			return strings.ReplaceAll(text, "hunter2", "***"), true
		})
		var o textless
		w := serve(t, redact, WithObserver(&o))
		for i := range 1000 {
			w.event(&Stream{ID: uint64(i), Node: &xds.Node{ID: "n"}}, nacked("bad: hunter2"), nil)
		}
		if asked.Load() != 1 || o.nacks[0] != "" {
			t.Errorf("asked %d times; the observer is told %q", asked.Load(), o.nacks[0])
		}
		time.Sleep(2 * dedup.Within)
		if lines := w.log.lines("bad: ***"); asked.Load() != 2 || len(lines) != 2 || !strings.Contains(lines[1], "repeated=999") || strings.Contains(w.log.String(), "hunter2") {
			t.Error(asked.Load(), w.log)
		}
	})
	within(t, "SAFE-9 a redactor takes at most a tenth of the time for an observer, and the first text of a node has priority", func(t *testing.T) {
		redact := WithRedactor(func(_ *xds.Node, _ *xds.Type, text string) (string, bool) {
			time.Sleep(10 * time.Millisecond)
			return "seen", true
		})
		var o witness
		w := serve(t, redact, WithObserver(&o))
		st := &Stream{ID: 1, Node: &xds.Node{ID: "n"}}
		looked := func() int {
			n := len(slices.DeleteFunc(slices.Clone(o.nacks), func(s string) bool { return s != "seen" }))
			if rest := len(slices.DeleteFunc(slices.Clone(o.nacks), func(s string) bool { return s != textNotChecked })); n+rest != len(o.nacks) {
				t.Fatal(o.nacks)
			}
			return n
		}
		for range 1000 {
			w.event(st, nacked("bad"), nil)
		}
		// Half a second is saved up, and a tenth is added while it is used.
		if n := looked(); n < 50 || n > 57 {
			t.Errorf("%d were looked at", n)
		}
		o.nacks = nil
		w.event(&Stream{ID: 2, Node: &xds.Node{ID: "another"}}, nacked("bad"), nil)
		if looked() != 1 {
			t.Error("the text of another node is not shown")
		}
		for i := range 1000 {
			w.event(&Stream{ID: uint64(i), Node: &xds.Node{ID: fmt.Sprint("made-up-", i)}}, nacked("bad"), nil)
		}
		if n := looked(); n > 57 {
			t.Errorf("%d were looked at", n)
		}
		o.nacks = nil
		time.Sleep(10 * time.Second)
		for range 1000 {
			w.event(st, nacked("bad"), nil)
		}
		if n := looked(); n < 50 || n > 57 {
			t.Errorf("%d were looked at", n)
		}
	})
	within(t, "OBS-1 names are cut", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res(strings.Repeat("x", 4000), "1"))
		c, r := w.ofNode(t, "n")
		c.send(nack(r, "no"))
		synctest.Wait()
		if log := w.log.String(); len(log) < maxLogged || len(log) > 2*maxLogged {
			t.Error(log)
		}
	})
	within(t, "OBS-2 made-up reasons of others do not hide the first NACK of a node", func(t *testing.T) {
		w := serve(t)
		w.set(xds.Cluster, res("a", "1"))
		for i := range dedup.MaxReasons + 100 {
			st := &Stream{ID: uint64(i), Node: &xds.Node{ID: fmt.Sprint("flood-", i/20)}}
			w.event(st, nacked(strings.Repeat("x", i)), nil)
		}
		before := len(w.log.lines("client refused a response (NACK)"))
		if most := (dedup.MaxReasons/20 + 5) * (dedup.Share + 1); before > most {
			t.Errorf("%d lines, more than %d", before, most)
		}
		c, r := w.ofNode(t, "prod-edge-1")
		c.send(nack(r, "a real mistake"))
		synctest.Wait()
		if lines := w.log.lines("a real mistake"); len(lines) != 1 || !strings.Contains(lines[0], "node=prod-edge-1") {
			t.Error(lines)
		}
		time.Sleep(2 * dedup.Within)
	})
	within(t, "OBS-2 made-up nodes of an address are some lines, and do not hide NACKs of older clients or of other addresses", func(t *testing.T) {
		w := serve(t)
		old := time.Now()
		time.Sleep(2 * time.Minute)
		for i := range many {
			for range 2 { // the second NACK of each node is counted, too
				w.event(nodeAt("192.0.2.1", fmt.Sprint("made-up-", i), time.Now()), nacked(fmt.Sprint("reason ", strings.Repeat("x", i%1000), i)), nil)
			}
		}
		time.Sleep(3 * dedup.Within)
		if n := len(w.log.lines("")); n > 2*maxWarned+10 {
			t.Errorf("%d lines", n)
		}
		sum := w.log.lines("not all errors of the clients of an address are logged")
		if len(sum) == 0 || !strings.Contains(sum[0], "192.0.2.1") || !strings.Contains(sum[0], `nodes="[made-up-`) {
			t.Error(sum)
		}
		for i := range many {
			w.event(nodeAt("192.0.2.1", fmt.Sprint("made-up-", i), time.Now()), nacked(fmt.Sprint("reason ", strings.Repeat("x", i%1000), i)), nil)
		}
		w.event(nodeAt("192.0.2.2", "elsewhere", time.Now()), nacked("a mistake"), nil)
		w.event(nodeAt("192.0.2.1", "long-there", old), nacked("another error"), nil)
		if len(w.log.lines("node=elsewhere")) != 1 || len(w.log.lines("node=long-there")) != 1 {
			t.Error("a first NACK is hidden")
		}
		time.Sleep(3 * dedup.Within)
	})
	within(t, "OBS-2 SAFE-9 made-up nodes of many addresses are some lines and a count, and do not hide NACKs of older clients", func(t *testing.T) {
		w := serve(t)
		old := time.Now()
		time.Sleep(2 * time.Minute)
		for i := range many {
			w.event(nodeAt(fmt.Sprintf("10.0.%d.%d", i/256, i%256), fmt.Sprint("made-up-", i), time.Now()), nacked("reason "+letters(i)), nil)
		}
		w.event(nodeAt("192.0.2.1", "long-there", old), nacked("a mistake"), nil)
		if n := len(w.log.lines("")); n > 1000+1 {
			t.Errorf("%d lines", n)
		}
		if len(w.log.lines("node=long-there")) != 1 {
			t.Error("a first NACK is hidden")
		}
		time.Sleep(3 * dedup.Within)
		sum := w.log.lines("not all errors of clients are logged")
		if len(sum) != 1 || !strings.Contains(sum[0], fmt.Sprintf("repeated=%d ", many-1000)) || !strings.Contains(sum[0], `nodes="[made-up-`) || !strings.Contains(sum[0], fmt.Sprintf("peer=10.0.%d.%d", (many-1)/256, (many-1)%256)) {
			t.Error(sum)
		}
	})
	within(t, "OBS-2 made-up nodes of some addresses do not hide the first NACK of another address", func(t *testing.T) {
		w := serve(t)
		for i := range many {
			ip := fmt.Sprintf("10.0.0.%d", i%200)
			w.event(nodeAt(ip, fmt.Sprint("made-up-", i), time.Now()), nacked("reason "+letters(i)), nil)
		}
		w.event(nodeAt("192.0.2.1", "elsewhere", time.Now()), nacked("a mistake"), nil)
		if len(w.log.lines("node=elsewhere")) != 1 {
			t.Error("a first NACK is hidden")
		}
		time.Sleep(dedup.Within)
		if n := len(w.log.lines("")); n > 1000+200+1 { // the lines so far, one line for each address, and one for all addresses
			t.Errorf("%d lines", n)
		}
		time.Sleep(2 * dedup.Within)
	})
	within(t, "OBS-2 the line with the count also has the number of nodes", func(t *testing.T) {
		w := serve(t)
		for i, node := range []string{"stranger", "prod-edge-2", "stranger", "prod-edge-3", "a", "b", "c"} {
			w.event(&Stream{ID: uint64(i), Node: &xds.Node{ID: node}}, nacked("the same"), nil)
		}
		time.Sleep(2 * dedup.Within)
		if lines := w.log.lines("the same"); len(lines) != 2 || !strings.Contains(lines[1], `repeated=6 nodes="[prod-edge-2 stranger prod-edge-3 a b]"`) {
			t.Error(lines)
		}
	})
	within(t, "REST-3 OBS-1 a poll that was not applied names its resources", func(t *testing.T) {
		p := &Poll{names: []string{xds.Wildcard, "a", "b", "c", "d", "e", "f"}}
		if got := fmt.Sprint(p.fewNames()); got != "[a b c d e]" {
			t.Error(got)
		}
	})
}

// letters returns a number without digits, so that reasons differ in more than digits.
func letters(i int) string {
	return strings.Map(func(r rune) rune { return r - '0' + 'a' }, fmt.Sprint(i))
}

// nodeAt returns a stream of a node at an address.
func nodeAt(ip, node string, since time.Time) *Stream {
	return &Stream{ID: 1, Node: &xds.Node{ID: node}, Peer: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(ip), 1)), Since: since}
}

func TestRecovered(t *testing.T) {
	within(t, "OBS-3 the end of a refusal is logged", func(t *testing.T) {
		w := serve(t)
		var book logbook
		w.Server.log = slog.New(slog.NewTextHandler(&book, nil))
		w.set(xds.Cluster, res("a", "1"))
		c, r := w.ofNode(t, "n")
		c.send(ack(r))
		synctest.Wait()
		if lines := book.lines("client no longer refuses a type"); lines != nil {
			t.Error("it refused nothing", lines)
		}
		for i := range 2 {
			w.set(xds.Cluster, res("a", fmt.Sprint("bad ", i)))
			c.send(nack(c.want(), "no"))
			time.Sleep(3 * time.Second)
		}
		if lines := book.lines("client no longer refuses a type"); lines != nil {
			t.Error(lines)
		}
		w.set(xds.Cluster, res("a", "2"))
		good := c.want()
		c.send(ack(good))
		c.send(ack(good))
		synctest.Wait()
		lines := book.lines("client no longer refuses a type")
		if len(lines) != 1 || !strings.Contains(lines[0], "level=INFO") || !strings.Contains(lines[0], "node=n type=CDS version="+good.VersionInfo+" after=6s") {
			t.Error(lines)
		}
	})
}

// A textless witness gets no texts.
type textless struct{ witness }

func (*textless) CodesOnly() {}

func nacked(text string) protocol.Event {
	return protocol.Event{Kind: protocol.Nacked, Type: xds.Cluster, Error: &xds.Status{Message: text}}
}

// OBS-2: warnings are counted for each node at an address. Without a node id, they are counted for
// each stream.
func TestLogOwner(t *testing.T) {
	peer := func(a string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a)) }
	seen := map[string]string{}
	for name, st := range map[string]*Stream{
		"a node":                         {ID: 1, Node: &xds.Node{ID: "n"}, Peer: peer("10.0.0.1:1")},
		"the same id at another address": {ID: 1, Node: &xds.Node{ID: "n"}, Peer: peer("10.0.0.2:1")},
		"a stream without a node":        {ID: 2, Node: &xds.Node{}, Peer: peer("10.0.0.1:1")},
		"another":                        {ID: 3, Node: &xds.Node{}, Peer: peer("10.0.0.1:1")},
		"before the first request":       {ID: 4, Peer: peer("10.0.0.1:1")},
		"that of another host":           {ID: 5, Peer: peer("10.0.0.2:1")},
		"an unknown stream":              {ID: 6},
	} {
		who := logOwner(st)
		if other, taken := seen[who]; taken {
			t.Errorf("OBS-2 %s is %s", name, other)
		}
		seen[who] = name
	}
	if a, b := (&Stream{ID: 7, Peer: peer("10.0.0.1:2")}), (&Stream{ID: 8, Node: &xds.Node{ID: "n"}, Peer: peer("10.0.0.1:3")}); seen[logOwner(a)] != "before the first request" || seen[logOwner(b)] != "a node" {
		t.Errorf("OBS-2 %q, %q", logOwner(a), logOwner(b))
	}
}
