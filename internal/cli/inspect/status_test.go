package inspect

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/testkit/canned"
)

// SAFE-10: status of a relay shows that the served resources come from the last run.
func TestRelayStatusFromDisk(t *testing.T) {
	o := overview{Status: &api.Status{}, list: &api.ClientList{}}
	o.Config.Upstream, o.Config.Resources = &api.Upstream{URL: "xds://up"}, 2
	var b strings.Builder
	o.print(&b, &cli.Output{}, adminclient.Filter{})
	if !strings.Contains(b.String(), "revision 0 from disk (last good), the upstream is unreachable\n") {
		t.Error(b.String())
	}
}

// An upstream without subscriptions does not count as lost.
func TestRelayStatusIdle(t *testing.T) {
	o := overview{Status: &api.Status{}, list: &api.ClientList{}}
	o.Config.Upstream = &api.Upstream{URL: "xds://up", Idle: true}
	var b strings.Builder
	o.print(&b, &cli.Output{}, adminclient.Filter{})
	if want := "UPSTREAM xds://up: not used, since no client subscribes\n"; !strings.Contains(b.String(), want) {
		t.Error(b.String())
	}
}

// The refusal of a disconnected client does not show a growing age.
func TestClientThatLeftHadRefused(t *testing.T) {
	c := canned.Clients()[0]
	for _, want := range []string{"LDS refused for 6m, last 1m ago", "LDS had refused, last 1m ago"} {
		var b strings.Builder
		if printClientCard(&b, &cli.Output{Format: "table"}, c); !strings.Contains(b.String(), "\n"+want+" (nonce 41") {
			t.Errorf("%s lacks %s", b.String(), want)
		}
		c.Left = &api.Left{At: time.Now(), Code: "Canceled"}
	}
}

// The note about further clients does not count hidden healthy clients.
func TestStatusCountsListedClients(t *testing.T) {
	for hidden, want := range map[int]bool{2: false, 1: true} {
		o := overview{Status: &api.Status{}, list: &api.ClientList{Items: []api.Client{{Node: "a"}}, Total: 3, Hidden: hidden}}
		var b strings.Builder
		o.print(&b, &cli.Output{Format: "table"}, adminclient.Filter{})
		if got := strings.Contains(b.String(), "(more of them: chancery get clients)"); got != want {
			t.Errorf("%d hidden: %s", hidden, b.String())
		}
	}
}

// A long node ID does not widen the rows of other clients. -o wide shows it in full.
func TestTablesCutLongNodeIDs(t *testing.T) {
	long := strings.Repeat("ü", 4000)
	o := overview{Status: &api.Status{}, list: &api.ClientList{Items: []api.Client{{Node: long}, {Node: "edge-1"}}}}
	o.Refusals = []api.Refusal{{Type: "CDS", Clients: 1, Nodes: []string{long}}}
	o.Troubles = []api.Trouble{{Code: "stuck", Node: long}}
	o.TurnedAway = []api.TurnedAway{{Kind: "access", Node: long}}
	for format, want := range map[string]string{"table": strings.Repeat("ü", 63) + "… ", "wide": long + " "} {
		var b strings.Builder
		o.print(&b, &cli.Output{Format: format}, adminclient.Filter{})
		if n := strings.Count(b.String(), want); n != 4 {
			t.Errorf("%s: %d tables of 4 have the node ID as expected", format, n)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(line); format == "table" && n > 2*maxNodeCell {
				t.Errorf("a line has %d characters", n)
			}
		}
	}
}

// SAFE-17: status shows that the etcd was put back to a backup.
func TestStatusShowsThatTheEtcdWentBack(t *testing.T) {
	o := overview{Status: &api.Status{}, list: &api.ClientList{}}
	o.Config.Store = &api.Store{URL: "etcd://a/p", WentBack: &api.WentBack{At: time.Now().Add(-time.Minute), From: 41, To: 7}}
	var b strings.Builder
	o.print(&b, &cli.Output{}, adminclient.Filter{})
	if want := "         the etcd went back from its revision 41 to 7, 1m ago: everything was read again\n"; !strings.Contains(b.String(), want) {
		t.Error(b.String())
	}
}

// HEAL-3: status shows the clients that run on a version which other clients accepted.
func TestStatusShowsEarlierVersions(t *testing.T) {
	o := overview{Status: &api.Status{}, list: &api.ClientList{}}
	o.Config.Earlier = []api.Earlier{
		{Type: "RDS", Name: "local", Refused: "881fb3ed060617d7", Served: "1a8802cfe1ddcd3c", Clients: 3},
		{Type: "LDS", Name: "web", Refused: "881fb3ed060617d7", Served: "1a8802cfe1ddcd3c", Clients: 1},
		{Type: "RDS", Name: "stored", Refused: "881fb3ed060617d7", Served: "1a8802cfe1ddcd3c", RefusedSince: "r42", ServedSince: "r41", Clients: 3},
	}
	var b strings.Builder
	o.print(&b, &cli.Output{}, adminclient.Filter{})
	for _, want := range []string{" of RDS local, which others accepted: they refuse version ", "1 client runs on version ", ": it refuses version ", "\n3 clients run on r41 of RDS stored, which others accepted: they refuse r42\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %q", b.String(), want)
		}
	}
	c := canned.Clients()[0]
	for i := range c.Types {
		if n := c.Types[i].Nacked; n != nil {
			n.Kept = []api.Kept{{Name: "web", Refused: "2", Kept: "1", Others: true, Why: "named"}}
		}
	}
	b.Reset()
	printClientCard(&b, &cli.Output{Format: "table"}, c)
	if want := "in quarantine: web version 2; it runs on version 1, which other clients accepted (named)\n"; !strings.Contains(b.String(), want) {
		t.Errorf("%s lacks %q", b.String(), want)
	}
}

// A client with a stream for each name has one line for the streams of a type, and one row for the accepted ones.
func TestStreamsOfOneTypeShareALine(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	c := api.Client{Node: "n"}
	for id, typ := range []string{"CDS", "EDS", "EDS", "EDS"} {
		s := api.TypeStatus{Type: typ, URL: typ, Stream: uint64(id), State: api.Synced, Wildcard: id == 0, Sent: &api.Message{Version: "v" + typ, At: at}}
		if id > 0 {
			s.Names = 1
		}
		c.Streams = append(c.Streams, api.Stream{ID: uint64(id), API: typ, Variant: "delta", Since: at})
		c.Types = append(c.Types, s)
	}
	c.Types[2].State = api.Nacked
	if got := streamsText(c.Streams); got != "CDS delta, 3 EDS delta" {
		t.Error(got)
	}
	for format, want := range map[string][]string{
		"table": {"STREAMS 0: CDS delta, since 1m", " 1 and 2 more: EDS delta, since 1m", "CDS SYNCED all ", "EDS SYNCED 2 names on 2 streams vEDS 1m ago", "EDS NACKED 1 name vEDS"},
		"wide":  {" 3: EDS delta, since 1m", "EDS SYNCED 1 name vEDS 1m ago"},
	} {
		var b strings.Builder
		printClientCard(&b, &cli.Output{Format: format}, c)
		for _, part := range want {
			if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), part) {
				t.Errorf("%s: no %q in\n%s", format, part, &b)
			}
		}
	}
}
