package roles

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// AdminToken is the name of the token of --admin-token-file.
const AdminToken = "admin"

// Limits of a file, because each request is compared with all subjects, and each token file is read each second.
const (
	maxSubjects = 10_000
	maxTokens   = 100
)

// Parse parses a roles file; file is its path in problems, and the directory of relative paths. The function
// uid returns the number of a user of this machine. If one of the problems is an error, the policy is nil, and
// the caller should keep the present policy.
func Parse(file string, data []byte, uid func(user string) (int, error)) (*Policy, []findings.Problem) {
	r, doc := yamlkeys.Open("roles file", file, data)
	p := parser{Reader: r, conditions: access.NewConditionReader(r, findings.AdminRole), policy: &Policy{claims: map[string]bool{}}, uid: uid, path: file, dir: filepath.Dir(file)}
	if doc != nil {
		p.file(doc)
	} else if p.sound() {
		p.Problems = []findings.Problem{{File: file, Code: findings.AdminRole, Message: "the file is empty: bindings are needed"}}
	}
	if !p.sound() {
		return nil, p.Problems
	}
	return p.policy, p.Problems
}

// A parser parses one file.
type parser struct {
	*yamlkeys.Reader
	conditions *access.ConditionReader
	policy     *Policy
	uid        func(string) (int, error)
	path, dir  string // of the file
	subjects   int    // number of subjects so far
	uses       []tokenUse
	claims     *yaml.Node // the first subject with claims; nil: none
	claimsPath string
}

// A tokenUse is a token that a subject names.
type tokenUse struct {
	node *yaml.Node
	path string
	name string
}

func (p *parser) sound() bool {
	return p.Errors() == 0 && !slices.ContainsFunc(p.Problems, func(f findings.Problem) bool { return !f.Warning })
}

// place returns the place of a node.
func (p *parser) place(n *yaml.Node) string { return fmt.Sprintf("%s:%d:%d", p.path, n.Line, n.Column) }

func (p *parser) wrong(n *yaml.Node, path, hint, format string, args ...any) {
	p.ReportAs(findings.AdminRole, n, path, hint, format, args...)
}

func (p *parser) file(n *yaml.Node) {
	if !p.Each(findings.AdminRole, n, "", "the roles file", yamlkeys.Keys{
		"tokens":   p.tokens,
		"oidc":     p.oidc,
		"servers":  p.servers,
		"bindings": p.bindings,
	}, nil) {
		return
	}
	for _, u := range p.uses {
		if u.name != AdminToken && !slices.ContainsFunc(p.policy.files, func(f TokenFile) bool { return f.Name == u.name }) {
			p.wrong(u.node, u.path, "tokens: {NAME: FILE}, or admin for the token of --admin-token-file", "no token has the name %s", yamlkeys.Quoted(u.name))
		}
	}
	if p.claims != nil && p.policy.oidc == nil && p.sound() {
		p.wrong(p.claims, p.claimsPath, "oidc: {issuer: https://…, client_id: …}", "claims are of ID tokens, and the file names no issuer")
	}
	if len(p.policy.bindings) == 0 && p.sound() {
		p.wrong(n, "", "bindings: [{role: view, subjects: [{token: admin}]}]", "bindings are needed: without them, no caller may do anything")
	}
}

// servers reads the subjects that may state any caller, so they need a credential.
func (p *parser) servers(n *yaml.Node, path string) {
	p.policy.servers = p.subjectsOf(n, path)
	if slices.ContainsFunc(p.policy.servers, func(s subject) bool { return s.loopback }) {
		p.wrong(n, path, "", "a server needs a credential: without credentials, each program of this machine could state any role")
	}
}

// nameForm is the form of the name of a token, which is shown in logs and events.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (p *parser) tokens(n *yaml.Node, path string) {
	flat := p.Flat(n, path)
	if flat == nil {
		return
	}
	for i := 0; i+1 < len(flat.Content); i += 2 {
		key := flat.Content[i]
		at := yamlkeys.Join(path, yamlkeys.Short(key.Value))
		file := p.Text(yamlkeys.Follow(flat.Content[i+1]), at)
		switch {
		case key.Value == AdminToken:
			p.wrong(key, at, "", "the name admin belongs to the token of --admin-token-file")
		case !nameForm.MatchString(key.Value):
			p.wrong(key, at, "", "the name of a token has letters, digits, dots, - and _, at most 63 in all")
		case i/2 == maxTokens:
			p.wrong(key, at, "", "more than %d tokens", maxTokens)
			return
		case file == "":
			p.wrong(key, at, "", "the path of a file is needed")
		default:
			p.policy.files = append(p.policy.files, TokenFile{key.Value, p.absolute(file), p.place(flat.Content[i+1])})
		}
	}
}

// absolute returns the path of a file, which is relative to the roles file; "" stays.
func (p *parser) absolute(file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(p.dir, file)
}

func (p *parser) oidc(n *yaml.Node, path string) {
	c := &OIDC{}
	texts := func(to *[]string) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			p.list(n, path, "strings", func(n *yaml.Node, path string, _ int) bool {
				*to = append(*to, p.Text(n, path))
				return true
			})
		}
	}
	if !p.Each(findings.AdminRole, n, path, "oidc", yamlkeys.Keys{
		"issuer":    func(n *yaml.Node, path string) { c.Issuer = p.issuer(n, path) },
		"client_id": func(n *yaml.Node, path string) { c.ClientID = p.Text(n, path) },
		"client_secret_file": func(n *yaml.Node, path string) {
			c.SecretFile, p.policy.secretPlace = p.absolute(p.Text(n, path)), p.place(n)
		},
		"ca_file":    func(n *yaml.Node, path string) { c.CAFile = p.absolute(p.Text(n, path)) },
		"public_url": func(n *yaml.Node, path string) { c.PublicURL = p.publicURL(n, path) },
		"audiences":  texts(&c.Audiences),
		"scopes":     texts(&c.Scopes),
	}, nil) {
		return
	}
	if p.sound() && (c.Issuer == "" || c.ClientID == "") {
		p.wrong(n, path, "", "issuer and client_id are needed")
	}
	p.policy.oidc = c
}

// issuer reads the URL of an issuer, whose keys decide who may do what.
func (p *parser) issuer(n *yaml.Node, path string) string {
	text := p.Text(n, path)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !listen.LocalHost(u.Host)) {
		p.wrong(n, path, "", "an https:// URL is needed, not %s", yamlkeys.Quoted(text))
	}
	return text
}

// publicURL reads the URL of the server for browsers, and returns its scheme and host as browsers write them.
func (p *parser) publicURL(n *yaml.Node, path string) string {
	text := p.Text(n, path)
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.TrimSuffix(text, "/") != "https://"+u.Host {
		p.wrong(n, path, "the page is at the root of a host", "a URL such as https://chancery.example.com is needed, not %s", yamlkeys.Quoted(text))
		return ""
	}
	return "https://" + strings.TrimSuffix(strings.ToLower(u.Host), ":443")
}

// list reads a list, and reports a problem for any other value and for an empty list.
func (p *parser) list(n *yaml.Node, path, of string, take func(n *yaml.Node, path string, i int) bool) {
	switch {
	case n.Kind != yaml.SequenceNode:
		p.Report(n, path, "", "a list of %s is needed, not %s", of, yamlkeys.What(n))
	case len(n.Content) == 0:
		p.wrong(n, path, "", "the list is empty")
	default:
		yamlkeys.Items(n, path, take)
	}
}

func (p *parser) bindings(n *yaml.Node, path string) {
	p.list(n, path, "bindings", func(n *yaml.Node, path string, _ int) bool {
		p.binding(n, path)
		return p.subjects <= maxSubjects
	})
}

func (p *parser) binding(n *yaml.Node, path string) {
	var b binding
	var groups *yaml.Node
	if !p.Each(findings.AdminRole, n, path, "a binding", yamlkeys.Keys{
		"role": func(n *yaml.Node, path string) {
			word := p.Text(n, path)
			b.role = roleOf(word)
			if b.role == None {
				p.wrong(n, path, "", "a role is view, operate or commit, not %s", yamlkeys.Quoted(word))
			}
		},
		"groups":   func(n *yaml.Node, path string) { groups = n; b.groups = p.groups(n, path) },
		"subjects": func(n *yaml.Node, path string) { b.subjects = p.subjectsOf(n, path) },
	}, nil) {
		return
	}
	switch {
	case !p.sound():
	case b.role == None:
		p.wrong(n, path, "", "a binding needs a role")
	case b.subjects == nil:
		p.wrong(n, path, "", "a binding needs subjects")
	case b.role == View && groups != nil:
		p.wrong(groups, yamlkeys.Join(path, "groups"), "leave groups out", "view is always for all groups: events and counts would show the others")
	case b.role > View && slices.ContainsFunc(b.subjects, func(s subject) bool { return s.loopback }):
		p.wrong(n, path, "", "callers without credentials may only view, not %s", b.role)
	}
	p.policy.bindings = append(p.policy.bindings, b)
}

func (p *parser) groups(n *yaml.Node, path string) []glob.Pattern {
	all := []glob.Pattern{}
	p.list(n, path, "groups", func(n *yaml.Node, path string, _ int) bool {
		text := p.Text(n, path)
		w, err := glob.Compile(text)
		switch {
		case err != nil:
			p.wrong(n, path, "", "%s", err)
		case text == "":
			p.wrong(n, path, "** matches anything", "the pattern is empty")
		}
		all = append(all, w)
		return true
	})
	return all
}

func (p *parser) subjectsOf(n *yaml.Node, path string) (all []subject) {
	p.list(n, path, "subjects", func(n *yaml.Node, path string, _ int) bool {
		p.subjects++
		if p.subjects > maxSubjects {
			p.wrong(n, path, "", "more than %d subjects in the file", maxSubjects)
			return false
		}
		s := p.subject(n, path)
		for _, name := range s.condition.Claims() {
			p.policy.claims[name] = true
			if p.claims == nil {
				p.claims, p.claimsPath = n, path
			}
		}
		all = append(all, s)
		return true
	})
	return all
}

// subject reads a subject: a token, the loopback, a user, or a condition on identities.
func (p *parser) subject(n *yaml.Node, path string) (s subject) {
	user := -1
	s.condition = p.conditions.Read(n, path, "subject", yamlkeys.Keys{
		"token": func(n *yaml.Node, path string) {
			s.token = p.Text(n, path)
			p.uses = append(p.uses, tokenUse{n, path, s.token})
		},
		"loopback": func(n *yaml.Node, path string) {
			s.loopback, _ = protoyaml.CoreScalar(n).(bool)
			if !s.loopback {
				p.Report(n, path, "", "true is needed, not %s", yamlkeys.What(n))
			}
		},
		"user": func(n *yaml.Node, path string) {
			name := p.Text(n, path)
			var err error
			user, err = p.uid(name)
			if name != "" && err != nil {
				p.wrong(n, path, "uid takes the number of a user", "%s", err)
			}
		},
	})
	if alone := s.token != "" || s.loopback || user >= 0; alone && n.Kind == yaml.MappingNode && len(n.Content) > 2 {
		p.wrong(n, path, "make it two subjects", "token, loopback and user must be the only key of a subject")
	}
	if user >= 0 {
		s.condition = access.OfUser(user)
	}
	return s
}
