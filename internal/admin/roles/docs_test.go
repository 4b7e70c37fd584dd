package roles

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/chancery-xds/chancery/internal/auth/access"
)

// The file in the documentation is valid, and gives the roles that it seems to give.
func TestFileOfDocsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/roles.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatal("no file")
	}
	p, problems := Parse("/etc/roles.yaml", blocks[0][1], func(string) (int, error) { return 1000, nil })
	if p == nil {
		t.Fatal(problems)
	}
	if p, problems := Parse("/etc/roles.yaml", blocks[1][1], nil); p == nil || p.Issuer().SecretFile != "/etc/oidc.secret" {
		t.Fatal(problems)
	}
	for want, proof := range map[string]Proof{
		"[{view []}]":          {Loopback: true},
		"[{commit [pay]}]":     {Token: "ci"},
		"[{operate [edge-*]}]": {Identity: access.Identity{Kind: access.Unix, UID: 1000}},
		"[{commit []}]":        {Identity: access.Identity{Kind: access.MTLS, URIs: []string{"spiffe://prod/ns/platform/sa/x"}}},
	} {
		if got := fmt.Sprint(p.Of(&proof).Grants()); got != want {
			t.Errorf("%s: %s", want, got)
		}
	}
}
