package roles

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/auth/access"
)

func users(name string) (int, error) {
	if name == "ana" {
		return 1000, nil
	}
	return 0, errors.New("unknown user")
}

const example = `
tokens: {deploy: tokens/deploy, board: /run/board}
oidc: {issuer: "https://idp.example.com", client_id: chancery}
servers:
- token: admin
bindings:
- role: view
  subjects: [{loopback: true}, {token: board}]
- role: operate
  groups: ["edge-*", "pay"]
  subjects: [{user: ana}, {dns: "*.ops.example.com"}]
- role: commit
  groups: [pay]
  subjects: [{user: ana}, {token: deploy}]
- role: commit
  subjects: [{uri: "spiffe://prod/ns/ops/**"}, {kind: jwt, claims: {realm_access: {roles: [sre]}}}]
`

// A file binds callers to roles; operate and commit may be for some groups.
func TestRolesOfCallers(t *testing.T) {
	p, problems := Parse("/etc/roles.yaml", []byte(example), users)
	if p == nil {
		t.Fatal(problems)
	}
	if got := fmt.Sprint(p.TokenFiles()); got != "[{deploy /etc/tokens/deploy /etc/roles.yaml:2:18} {board /run/board /etc/roles.yaml:2:40}]" {
		t.Error(got)
	}
	p = p.WithTokens(map[string]string{"deploy": "abc"})
	if p.Token("abc") != "deploy" || p.Token("") != "" || p.Token("ab") != "" {
		t.Error("tokens")
	}
	jwt := func(claims map[string]any) Proof {
		return Proof{Identity: access.Identity{Kind: access.JWT, Subject: "x", Claims: claims}}
	}
	for name, c := range map[string]struct {
		proof Proof
		want  string
	}{
		"nobody":                        {Proof{}, "[]"},
		"loopback":                      {Proof{Loopback: true}, "[{view []}]"},
		"a token":                       {Proof{Token: "board"}, "[{view []}]"},
		"a token without a binding":     {Proof{Token: "other"}, "[]"},
		"two roles":                     {Proof{Identity: access.Identity{Kind: access.Unix, UID: 1000}}, "[{operate [edge-* pay]} {commit [pay]}]"},
		"root":                          {Proof{Identity: access.Identity{Kind: access.Unix}}, "[]"},
		"a certificate":                 {Proof{Identity: access.Identity{Kind: access.MTLS, DNS: []string{"A.OPS.example.com"}}}, "[{operate [edge-* pay]}]"},
		"a name of another kind":        {Proof{Identity: access.Identity{Kind: access.None, DNS: []string{"a.ops.example.com"}}}, "[]"},
		"a SPIFFE ID":                   {Proof{Identity: access.Identity{Kind: access.MTLS, URIs: []string{"spiffe://prod/ns/ops/sa/x"}}}, "[{commit []}]"},
		"a claim in a list":             {jwt(map[string]any{"realm_access": map[string]any{"roles": []any{"dev", "sre"}}}), "[{commit []}]"},
		"another value":                 {jwt(map[string]any{"realm_access": map[string]any{"roles": []any{"dev"}}}), "[]"},
		"a server of the store":         {Proof{Token: "admin"}, "[{view []}]"},
		"a token with an identity, too": {Proof{Token: "x", Identity: access.Identity{Kind: access.Unix, UID: 1000}}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.Of(&c.proof)
			if got := fmt.Sprint(r.Grants()); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			again, ok := Granted(r.Grants())
			if got := fmt.Sprint(again.Grants()); !ok || got != c.want {
				t.Errorf("as JSON and back: %s", got)
			}
		})
	}
	ana := p.Of(&Proof{Identity: access.Identity{Kind: access.Unix, UID: 1000}})
	for _, c := range []struct {
		role  Role
		group string
		want  bool
	}{
		{View, "x", false}, {Operate, "edge-1", true}, {Operate, "pay", true}, {Operate, "edge-1/x", false}, {Commit, "edge-1", false}, {Commit, "pay", true}, {Commit, "", false},
	} {
		if ana.Allows(c.role, c.group) != c.want {
			t.Errorf("%v", c)
		}
	}
	if ana.HasAll(Operate) || !ana.Has(View) || !Everything().HasAll(Commit) || (Rights{}).Has(View) {
		t.Error("Has or HasAll")
	}
	if p.IsServer(&Proof{Token: "deploy"}) || !p.IsServer(&Proof{Token: "admin"}) {
		t.Error("IsServer")
	}
}

// Rights that another server states must be valid.
func TestStatedRightsAreChecked(t *testing.T) {
	for _, g := range []Grant{{Role: "none"}, {Role: ""}, {Role: "root"}, {Role: "view", Groups: []string{"a"}}, {Role: "commit", Groups: []string{"{"}}} {
		if _, ok := Granted([]Grant{g}); ok {
			t.Errorf("%v", g)
		}
	}
}

// Each error has the place in the file.
func TestErrorsOfRolesFile(t *testing.T) {
	for text, want := range map[string]string{
		"":               "roles.yaml: the file is empty",
		"bindings: []":   "roles.yaml:1:11: bindings: the list is empty",
		"tokens: {a: b}": "roles.yaml:1:1: bindings are needed",
		"bindings: [{role: view, subjects: [{claims: {groups: sre}}]}]": "roles.yaml:1:36: bindings[0].subjects[0]: claims are of ID tokens, and the file names no issuer",
		"rules: []":    `roles.yaml:1:1: unknown key "rules" in the roles file`,
		"bindings: {}": "roles.yaml:1:11: bindings: a list of bindings is needed, not a mapping",
		"bindings: [":  "roles.yaml:1:",
		"bindings:\n- role: root\n  subjects: [{uid: 0}]":                                                   `roles.yaml:2:9: bindings[0].role: a role is view, operate or commit, not "root"`,
		"bindings:\n- subjects: [{uid: 0}]":                                                                 "roles.yaml:2:3: bindings[0]: a binding needs a role",
		"bindings:\n- role: view":                                                                           "roles.yaml:2:3: bindings[0]: a binding needs subjects",
		"bindings:\n- {role: view, groups: [a], subjects: [{uid: 0}]}":                                      "roles.yaml:2:24: bindings[0].groups: view is always for all groups",
		"bindings:\n- {role: commit, groups: [], subjects: [{uid: 0}]}":                                     "bindings[0].groups: the list is empty",
		"bindings:\n- {role: commit, groups: a, subjects: [{uid: 0}]}":                                      "a list of groups is needed",
		"bindings:\n- {role: commit, groups: ['a{'], subjects: [{uid: 0}]}":                                 "bindings[0].groups[0]: ",
		"bindings:\n- {role: commit, groups: [''], subjects: [{uid: 0}]}":                                   "the pattern is empty",
		"bindings:\n- {role: operate, subjects: [{loopback: true}]}":                                        "callers without credentials may only view, not operate",
		"servers: [{loopback: true}]\nbindings:\n- {role: view, subjects: [{uid: 0}]}":                      "roles.yaml:1:10: servers: a server needs a credential",
		"bindings:\n- {role: view, subjects: [{loopback: false}]}":                                          "true is needed",
		"bindings:\n- {role: view, subjects: [{token: x}]}":                                                 `bindings[0].subjects[0].token: no token has the name "x"`,
		"bindings:\n- {role: view, subjects: [{token: ''}]}":                                                "no token has the name",
		"bindings:\n- {role: view, subjects: [{user: bob}]}":                                                "unknown user",
		"bindings:\n- {role: view, subjects: [{user: ana, uid: 1}]}":                                        "must be the only key of a subject",
		"bindings:\n- {role: view, subjects: [{}]}":                                                         "a subject needs a condition",
		"bindings:\n- {role: view, subjects: [{subject: x}]}":                                               "subject needs exactly one kind",
		"bindings:\n- {role: view, subjects: [{tokn: x}]}":                                                  `did you mean "token"?`,
		"oidc: {issuer: 'http://a.example', client_id: x}\nbindings:\n- {role: view, subjects: [{uid: 0}]}": "roles.yaml:1:16: oidc.issuer: an https:// URL is needed",
		"oidc: {public_url: 'http://a.example'}\nbindings: []":                                              "roles.yaml:1:20: oidc.public_url: a URL such as https://chancery.example.com is needed",
		"oidc: {public_url: 'https://a.example/x'}\nbindings: []":                                           "oidc.public_url: a URL such as",
		"oidc: {client_id: x}\nbindings:\n- {role: view, subjects: [{uid: 0}]}":                             "issuer and client_id are needed",
		"tokens: {admin: x}\nbindings:\n- {role: view, subjects: [{uid: 0}]}":                               "roles.yaml:1:10: tokens.admin: the name admin belongs to",
		"tokens: {'a b': x}\nbindings:\n- {role: view, subjects: [{uid: 0}]}":                               "the name of a token has",
		"tokens: {a: ''}\nbindings:\n- {role: view, subjects: [{uid: 0}]}":                                  "the path of a file is needed",
		"bindings:\n- role: view\n  subjects: [" + strings.Repeat("{uid: 1}, ", 10_001) + "]":               "more than 10000 subjects",
	} {
		began := time.Now()
		p, problems := Parse("roles.yaml", []byte(text), users)
		got := ""
		for _, one := range problems {
			got += one.Error() + "\n"
		}
		if p != nil || !strings.Contains(got, want) {
			t.Errorf("%.80q:\n%.500s\nwant %s", text, got, want)
		}
		if time.Since(began) > 5*time.Second {
			t.Errorf("%.80q took %v", text, time.Since(began))
		}
	}
}
