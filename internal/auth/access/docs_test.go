package access

import (
	"os"
	"regexp"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// The rules in the documentation parse, and decide as the page says.
func TestRulesOfDocsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/identity.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 1 {
		t.Fatalf("%d blocks", len(blocks))
	}
	p := parse(t, string(blocks[0][1]))
	g, denied := decide(t, p, spiffe("spiffe://prod/ns/pay/sa/web"), &xds.Node{ID: "pay/web/1", Cluster: "pay", Metadata: metadata(t, map[string]any{"namespace": "pay"})}, "teams/pay", "default")
	if denied != "" || !g.Allows(xds.Secret, "pay/web/cert") || g.Allows(xds.Secret, "pay/db/cert") {
		t.Error(denied)
	}
	if _, denied := decide(t, p, Identity{Kind: Unix, UID: 1000}, &xds.Node{ID: "any"}); denied != "" {
		t.Error(denied)
	}
	if _, denied := decide(t, p, dns("h7.edge.example.com"), &xds.Node{ID: "h7"}); denied == "" {
		t.Error("the denied certificate is accepted")
	}
}
