package access

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/xds"
)

func parse(t testing.TB, text string) *Policy {
	t.Helper()
	p, problems := Parse("access.yaml", []byte(text))
	if p == nil {
		t.Fatalf("%v", problems)
	}
	return p
}

func metadata(t testing.TB, m map[string]any) []byte {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const example = `
rules:
- name: workloads
  identity: {uri: "spiffe://prod/ns/{ns}/sa/{sa}"}
  node:
    id: "{ns}/{sa}/*"
    cluster: "{ns}"
    metadata: {namespace: "{ns}"}
  groups: [default, "{ns}"]
  secrets: ["{ns}/{sa}/**", shared/ca]
- name: edge
  identity: {kind: mtls, dns: "{host}.edge.example.com"}
  node: {id: "{host}"}
  types: [CDS, EDS]
  names: {CDS: ["edge-*"]}
- name: retired
  deny: true
  identity: {dns: old.edge.example.com}
- name: no-admin
  deny: true
  node: {id: "a/**"}
  names: {CDS: ["admin-**"]}
  secrets: ["**/admin"]
`

func decide(t testing.TB, p *Policy, id Identity, n *xds.Node, groups ...string) (Grant, string) {
	t.Helper()
	g, err := p.Decide(id, n)
	if err == nil {
		g, err = g.In(groups)
	}
	if err != nil {
		if _, ok := errors.AsType[*Denied](err); !ok {
			t.Fatalf("%T", err)
		}
		return Grant{}, err.Error()
	}
	return g, ""
}

func spiffe(s string) Identity { return Identity{Kind: MTLS, URIs: []string{s}} }
func dns(s ...string) Identity { return Identity{Kind: MTLS, DNS: s} }

// The rules of the example decide which identity may be which node.
func TestDecide(t *testing.T) {
	p := parse(t, example)
	ns := func(id, cluster string, namespace any) *xds.Node {
		return &xds.Node{ID: id, Cluster: cluster, Metadata: metadata(t, map[string]any{"namespace": namespace})}
	}
	for name, c := range map[string]struct {
		id     Identity
		node   *xds.Node
		groups []string
		denied string // a part of the error; "": none
	}{
		"its node":                      {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", "a"), []string{"a", "default"}, ""},
		"another namespace":             {spiffe("spiffe://prod/ns/a/sa/web"), ns("b/web/1", "a", "a"), []string{"default"}, `mtls URI "spiffe://prod/ns/a/sa/web" may not be node "b/web/1" (rule "workloads")`},
		"another cluster":               {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "b", "a"), []string{"default"}, "may not be node"},
		"other metadata":                {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", "b"), []string{"default"}, "may not be node"},
		"other metadata beside its own": {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", []any{"a", "b"}), []string{"default"}, "may not be node"},
		"its own metadata twice":        {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", []any{"a", "a"}), []string{"default"}, ""},
		"an empty list":                 {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", []any{}), []string{"default"}, "may not be node"},
		"no metadata":                   {spiffe("spiffe://prod/ns/a/sa/web"), &xds.Node{ID: "a/web/1", Cluster: "a"}, []string{"default"}, "may not be node"},
		"broken metadata":               {spiffe("spiffe://prod/ns/a/sa/web"), &xds.Node{ID: "a/web/1", Cluster: "a", Metadata: []byte{0xff}}, []string{"default"}, "may not be node"},
		"a group of others":             {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", "a"), []string{"default", "b"}, `may not see the groups "default", "b" (rule "workloads")`},
		"groups unknown":                {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", "a"), nil, "its groups are not known"},
		"beyond a separator":            {spiffe("spiffe://prod/ns/a/sa/web"), ns("a/web/1/2", "a", "a"), []string{"default"}, "may not be node"},
		"a path that is longer":         {spiffe("spiffe://prod/ns/a/b/sa/web"), ns("a/web/1", "a", "a"), []string{"default"}, "no rule matches it"},
		"another trust domain":          {spiffe("spiffe://prod.evil/ns/a/sa/web"), ns("a/web/1", "a", "a"), []string{"default"}, "no rule matches it"},
		"a DNS name like a SPIFFE ID":   {dns("spiffe://prod/ns/a/sa/web"), ns("a/web/1", "a", "a"), []string{"default"}, "no rule matches it"},
		"a wildcard for a namespace":    {spiffe("spiffe://prod/ns/*/sa/web"), ns("*/web/1", "*", "*"), []string{"default"}, "no rule matches it"},
		"a host":                        {dns("h1.edge.example.com"), &xds.Node{ID: "h1"}, []string{"x"}, ""},
		"a host in capitals":            {dns("H1.Edge.EXAMPLE.com."), &xds.Node{ID: "h1"}, nil, ""},
		"a sign of kelvin":              {dns("\u212a.edge.example.com"), &xds.Node{ID: "k"}, nil, "may not be node"},
		"a host below":                  {dns("a.h1.edge.example.com"), &xds.Node{ID: "h1"}, nil, "no rule matches it"},
		"the second name":               {dns("x.y", "h2.edge.example.com"), &xds.Node{ID: "h2"}, nil, ""},
		"a host by a token":             {Identity{Kind: JWT, DNS: []string{"h1.edge.example.com"}}, &xds.Node{ID: "h1"}, nil, "no rule matches it"},
		"denied":                        {dns("old.edge.example.com"), &xds.Node{ID: "old"}, nil, `may not be node "old" (rule "retired")`},
		"denied beside another name":    {dns("h1.edge.example.com", "old.edge.example.com"), &xds.Node{ID: "h1"}, nil, `(rule "retired")`},
		"nobody":                        {Identity{}, &xds.Node{ID: "h1"}, nil, `a connection that proves no identity may not be node "h1": no rule matches it`},
		"no node":                       {dns("h1.edge.example.com"), nil, nil, `may not be node ""`},
		"a claim is no name":            {Identity{Kind: JWT, Claims: map[string]any{"dns": "h1.edge.example.com"}}, &xds.Node{ID: "h1"}, nil, "jwt without a name"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, got := decide(t, p, c.id, c.node, c.groups...); (got == "") != (c.denied == "") || !strings.Contains(got, c.denied) {
				t.Errorf("got %q, want %q", got, c.denied)
			}
		})
	}
}

// A grant shows the allowed resources.
func TestGrant(t *testing.T) {
	p := parse(t, example)
	web, _ := decide(t, p, spiffe("spiffe://prod/ns/a/sa/web"), &xds.Node{ID: "a/web/1", Cluster: "a", Metadata: metadata(t, map[string]any{"namespace": "a"})}, "a")
	h, _ := decide(t, p, dns("h1.edge.example.com"), &xds.Node{ID: "h1"}, "x")
	all, _ := decide(t, Default(), dns("h1"), &xds.Node{ID: "h1"})
	bare, _ := decide(t, parse(t, `rules: [{identity: {dns: "{n}"}}]`), dns("h1"), &xds.Node{ID: "h1"})
	v2 := xds.Secret.Legacy()
	for _, c := range []struct {
		g    Grant
		t    *xds.Type
		name string
		want bool
	}{
		{web, xds.Secret, "a/web/cert", true},
		{web, xds.Secret, "a/web/x/y", true},
		{web, xds.Secret, "a/web/", true},
		{web, xds.Secret, "a/web", false},
		{web, xds.Secret, "a/webb/cert", false},
		{web, xds.Secret, "b/web/cert", false},
		{web, xds.Secret, "shared/ca", true},
		{web, xds.Secret, "a/web/admin", false},
		{web, v2, "a/web/cert", true},
		{web, v2, "b/web/cert", false},
		{web, xds.Cluster, "anything", true},
		{web, xds.Cluster, "admin-1/2", false},
		{web, xds.TypeOf("type.googleapis.com/a.B"), "x", true},
		{h, xds.Cluster, "edge-1", true},
		{h, xds.Cluster, "edge-1.x", false},
		{h, xds.Cluster, "edge-", false},
		{h, xds.Cluster.Legacy(), "other", false},
		{h, xds.Endpoint, "anything", true},
		{h, xds.Listener, "x", false},
		{h, xds.TypeOf("type.googleapis.com/a.B"), "x", false},
		{h, xds.Secret, "x", false},
		{bare, xds.Secret, "x", false},
		{bare, v2, "x", false},
		{bare, xds.Cluster, "x", true},
		{all, xds.Secret, "x", true},
		{all, xds.TypeOf("type.googleapis.com/a.B"), "x", true},
		{Grant{}, xds.Cluster, "x", false},
		{all, nil, "x", false},
	} {
		if got := c.g.Allows(c.t, c.name); got != c.want {
			t.Errorf("%v of %s %q: %v", c.g.Rules(), c.t, c.name, got)
		}
	}
	if !all.All(xds.Secret) || web.All(xds.Secret) || !web.All(xds.Endpoint) || web.All(xds.Cluster) {
		t.Error("All")
	}
}

// A rule that denies wins over any number of others. An identity that may be a node by a rule may not
// be another node by the default.
func TestDenialWins(t *testing.T) {
	p := parse(t, `
otherwise: default
rules:
- {name: one, identity: {dns: "{n}"}, node: {id: "x-{n}"}}
- {name: two, identity: {dns: "{n}"}, node: {id: "x-{n}"}, types: [CDS]}
- {name: stolen, deny: true, identity: {dns: b}}
`)
	for id, want := range map[string]string{"a": "", "b": `(rule "stolen")`} {
		if _, got := decide(t, p, dns(id), &xds.Node{ID: "x-" + id}); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	if _, err := p.Decide(dns("b"), &xds.Node{ID: "x-b"}); err == nil {
		t.Error("b is not denied before its groups are known")
	}
	if _, got := decide(t, p, dns("a"), &xds.Node{ID: "a"}); !strings.Contains(got, `(rule "one, two")`) {
		t.Errorf("the denial does not name the rules: %q", got)
	}
}

// "With --client-ca binding is the default."
func TestDefault(t *testing.T) {
	for _, c := range []struct {
		id   Identity
		node string
		ok   bool
	}{
		{dns("web.example.com"), "web.example.com", true},
		{dns("Web.Example.com."), "web.example.com", true},
		{dns("Web.Example.com"), "Web.Example.com", true},
		{dns("web.example.com"), "WEB.example.com", false},
		{dns("web.example.com"), "web", false},
		{dns("*.example.com"), "a.example.com", false},
		{dns("*.example.com"), "*.example.com", false},
		{dns(""), "", false},
		{dns("."), "", false},
		{dns("a", "b"), "b", true},
		{spiffe("spiffe://prod/ns/a/sa/web"), "web", true},
		{spiffe("spiffe://prod/ns/a/sa/web"), "spiffe://prod/ns/a/sa/web", true},
		{spiffe("spiffe://prod/ns/a/sa/web"), "sa/web", false},
		{spiffe("spiffe://prod"), "prod", false},
		{spiffe("spiffe://prod/"), "", false},
		{spiffe("spiffe://prod/a/"), "", false},
		{spiffe("spiffe://prod/a/.."), "..", false},
		{spiffe("spiffe://prod/a/../web"), "web", false},
		{spiffe("spiffe://prod//web"), "web", false},
		{spiffe("spiffe://prod/web?x=y"), "web?x=y", false},
		{spiffe("spiffe://prod/a%2fweb"), "web", false},
		{spiffe("spiffe:///web"), "web", false},
		{spiffe("spiffe://pr@od/web"), "web", false},
		{spiffe("https://prod/web"), "web", false},
		{dns("spiffe://prod/web"), "web", false},
		{spiffe("SPIFFE://prod/web"), "web", false},
		{Identity{Kind: Unix, UID: 0}, "0", false},
		{Identity{Kind: JWT, Subject: "web"}, "web", false},
		{Identity{}, "", false},
		{Identity{}, "x", false},
	} {
		if _, err := Default().Decide(c.id, &xds.Node{ID: c.node}); (err == nil) != c.ok {
			t.Errorf("%v as %q: %v", c.id, c.node, err)
		}
	}
}

// The file may extend or replace the default.
func TestOtherwiseReplacesDefault(t *testing.T) {
	p := parse(t, `
otherwise: default
rules:
- {identity: {dns: gateway}, node: {id: "**"}}
- {identity: {dns: narrow}, node: {id: narrow, cluster: c}}
`)
	for _, c := range []struct {
		name, node, cluster string
		ok                  bool
	}{
		{"gateway", "any", "", true}, {"gateway", "", "", true},
		{"narrow", "narrow", "c", true}, {"narrow", "narrow", "d", false},
		{"other", "other", "", true}, {"other", "any", "", false},
	} {
		if _, err := p.Decide(dns(c.name), &xds.Node{ID: c.node, Cluster: c.cluster}); (err == nil) != c.ok {
			t.Errorf("%v: %v", c, err)
		}
	}
	for _, text := range []string{"", "rules: []", "otherwise: refuse"} {
		if _, err := parse(t, text).Decide(dns("a"), &xds.Node{ID: "a"}); err == nil {
			t.Errorf("%q allows a node", text)
		}
	}
	// A rule without a node applies to nodes with a name of the identity.
	p = parse(t, `rules: [{identity: {kind: mtls}, secrets: ["**"]}]`)
	if _, err := p.Decide(dns("a"), &xds.Node{ID: "b"}); err == nil {
		t.Error("a rule without a node allows any node")
	}
	if _, err := p.Decide(dns("a"), &xds.Node{ID: "a"}); err != nil {
		t.Error(err)
	}
}

// Each rule applies by itself: the resources of one are not added to the groups of another.
func TestRulesAreIndependent(t *testing.T) {
	p := parse(t, `
rules:
- {identity: {dns: a}, groups: [one], secrets: ["**"]}
- {identity: {dns: a}, groups: [two], types: [CDS], secrets: [x]}
- {deny: true, identity: {dns: a}, groups: [three]}
- {deny: true, identity: {dns: a}, groups: [two], secrets: [x]}
`)
	node := &xds.Node{ID: "a"}
	two, _ := decide(t, p, dns("a"), node, "two")
	one, _ := decide(t, p, dns("a"), node, "one")
	if two.Allows(xds.Secret, "y") || two.Allows(xds.Secret, "x") || two.Allows(xds.Listener, "x") || !two.Allows(xds.Cluster, "x") || !one.Allows(xds.Secret, "x") {
		t.Error("a rule for other groups applies")
	}
	for _, groups := range [][]string{{"one", "two"}, {"one", "three"}, {"four"}, nil} {
		if _, err := decide(t, p, dns("a"), node, groups...); err == "" {
			t.Errorf("groups %v are not denied", groups)
		}
	}
}

func TestClaims(t *testing.T) {
	p := parse(t, `
rules:
- name: tokens
  identity:
    kind: jwt
    issuer: https://issuer
    subject: "system:serviceaccount:{ns}:{sa}"
    claims: {aud: xds, kubernetes.io: {ns: "{ns}"}, level: [1, 2], ok: true}
  node: {id: "{ns}.{sa}"}
- {identity: {uid: 1000}, node: {id: local}}
`)
	claims := func(ns any, level any) map[string]any {
		return map[string]any{"aud": []any{"other", "xds"}, "kubernetes.io": map[string]any{"ns": ns}, "level": level, "ok": true}
	}
	jwt := func(ns, level any) Identity {
		return Identity{Kind: JWT, Issuer: "https://issuer", Subject: "system:serviceaccount:a:web", Claims: claims(ns, level)}
	}
	for _, c := range []struct {
		id   Identity
		node string
		ok   bool
	}{
		{jwt("a", 1.0), "a.web", true},
		{jwt([]any{"b", "a"}, 1.0), "a.web", true},
		{jwt("b", 1.0), "a.web", false}, // another {ns}
		{jwt("b", 1.0), "b.web", false},
		{jwt("a", 3.0), "a.web", false},
		{jwt("a", "1"), "a.web", false},
		{jwt(nil, 1.0), "a.web", false},
		{Identity{Kind: MTLS, Issuer: "https://issuer", Subject: "system:serviceaccount:a:web", Claims: claims("a", 1.0)}, "a.web", false},
		{Identity{Kind: Unix, UID: 1000}, "local", true},
		{Identity{Kind: MTLS, UID: 1000}, "local", false},
		{Identity{Kind: Unix}, "local", false},
	} {
		if _, err := p.Decide(c.id, &xds.Node{ID: c.node}); (err == nil) != c.ok {
			t.Errorf("%v as %q: %v", c.id, c.node, err)
		} else if err != nil && strings.Contains(err.Error(), "aud") {
			t.Errorf("claims are shown: %v", err)
		}
	}
}

// An identity with too many names is refused, also by rules that deny.
func TestTooManyNames(t *testing.T) {
	p := parse(t, `
rules:
- {identity: {dns: "{a}.x"}, node: {id: "{a}"}}
- {deny: true, identity: {dns: "{a}.y"}, node: {id: "{a}"}}
`)
	for _, zone := range []string{".x", ".y"} {
		var id Identity
		for i := range 100 {
			id.DNS = append(id.DNS, strings.Repeat("a", i+1)+zone)
		}
		id.DNS = append(id.DNS, "a.x")
		if _, err := p.Decide(id, &xds.Node{ID: "a"}); err == nil || !strings.Contains(err.Error(), "too many names") {
			t.Errorf("%v", err)
		}
	}
}
