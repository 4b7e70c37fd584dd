package main

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"

	adminapi "github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// Explain shows the rule that hides a resource from a client.
func TestExplainShowsRuleThatHidesResource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "access.yaml", "rules:\n- {name: edges, identity: {dns: client}, node: {id: edge-1}, names: {CDS: [a]}}\n")
	m := serveMutual(t, []string{"--access", filepath.Join(dir, "access.yaml")}, "a.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nname: a\naliases: [nick]\nresource: {\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: a, connect_timeout: 1s}\n", "b.yaml", cluster("b"))
	m.dial(m.target, credentials.NewTLS(m.config(m.ca.Issue("c", "client"))))
	m.as("edge-1").gets("a")
	api := adminClient(t, adminclient.Target{URL: "http://" + adminOf(t, m.runningServer)})
	link := func(name string) (is adminapi.Link, broken string) {
		e, err := api.Explain(m.ctx, "edge-1", "CDS", name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range e.Links {
			if l.Name == "allowed" {
				is = l
			}
		}
		return is, e.Broken
	}
	if l, broken := link("a"); !l.OK || broken == "allowed" || !strings.Contains(l.Text, "by rule edges") {
		t.Errorf("a visible resource: %+v, broken %q", l, broken)
	}
	if l, broken := link("nick"); !l.OK || broken == "allowed" || !strings.Contains(l.Text, "by rule edges") {
		t.Errorf("an alias of a visible resource: %+v, broken %q", l, broken)
	}
	if l, broken := link("b"); l.OK || broken != "allowed" || !strings.Contains(l.Text, `may not see CDS "b", by rule edges`) {
		t.Errorf("SAFE-13 a hidden resource: %+v, broken %q", l, broken)
	}
}
