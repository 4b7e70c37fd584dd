package access

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// maxValues is the maximum number of rules, patterns and other values in a file.
const maxValues = 50_000

// Parse parses an access.yaml; file is its name in problems. If one of the problems is an error, the
// policy is nil, and the caller should keep the present policy. If the file has no rules, no client
// may be any node.
func Parse(file string, data []byte) (*Policy, []findings.Problem) {
	r, doc := yamlkeys.Open("access.yaml", file, data)
	p := newParser(r, findings.AccessRule)
	if doc != nil {
		p.file(doc)
	}
	if slices.ContainsFunc(p.Problems, func(f findings.Problem) bool { return !f.Warning }) || p.Errors() > 0 {
		return nil, p.Problems
	}
	return p.policy, p.Problems
}

// A parser parses one file.
type parser struct {
	*yamlkeys.Reader
	code   findings.Code // of problems with rules
	policy *Policy
	left   int // how many more values are allowed
	named  map[string]bool

	captured map[string]bool // names that the identity of this rule captures
	uses     []use
}

func newParser(r *yamlkeys.Reader, code findings.Code) *parser {
	return &parser{Reader: r, code: code, policy: &Policy{}, left: maxValues, named: map[string]bool{}, captured: map[string]bool{}}
}

// A use is a pattern that uses captures.
type use struct {
	node    *yaml.Node
	path    string
	pattern glob.Pattern
}

func (p *parser) wrong(n *yaml.Node, path, hint, format string, args ...any) {
	p.ReportAs(p.code, n, path, hint, format, args...)
}

func (p *parser) each(n *yaml.Node, path, of string, known yamlkeys.Keys) bool {
	return p.Each(p.code, n, path, of, known, func(key string) string {
		switch {
		case known["rules"] != nil && slices.Contains([]string{"identity", "node", "deny", "secrets"}, key):
			return "it belongs below rules, in a list"
		case known["identity"] != nil && slices.Contains([]string{"dns", "uri", "kind", "subject", "issuer", "claims", "uid", "gid"}, key):
			return "it belongs below identity"
		case known["identity"] != nil && slices.Contains([]string{"id", "cluster", "metadata"}, key):
			return "it belongs below node"
		}
		return ""
	})
}

// count counts a value, and reports whether it is still allowed.
func (p *parser) count(n *yaml.Node, path string) bool {
	p.left--
	if p.left == -1 {
		p.wrong(n, path, "", "more than %d rules and values in the file", maxValues)
	}
	return p.left >= 0
}

// items parses a list, or a single value as a list of one.
func (p *parser) items(n *yaml.Node, path string, take func(n *yaml.Node, path string)) {
	yamlkeys.Items(n, path, func(n *yaml.Node, path string, _ int) bool {
		if !p.count(n, path) {
			return false
		}
		take(n, path)
		return true
	})
}

func (p *parser) file(n *yaml.Node) {
	p.each(n, "", "access.yaml", yamlkeys.Keys{
		"rules": func(n *yaml.Node, path string) {
			if n.Kind != yaml.SequenceNode {
				p.Report(n, path, "", "a list of rules is needed, not %s", yamlkeys.What(n))
				return
			}
			p.items(n, path, p.rule)
		},
		"otherwise": func(n *yaml.Node, path string) {
			switch word := p.Text(n, path); word {
			case "refuse":
			case "default":
				p.policy.otherwise = true
			default:
				p.wrong(n, path, "", "otherwise is refuse or default, not %s", yamlkeys.Quoted(word))
			}
		},
	})
}

// rule parses a rule.
func (p *parser) rule(n *yaml.Node, path string) {
	r := rule{name: path, place: p.File + ":" + strconv.Itoa(n.Line) + ":" + strconv.Itoa(n.Column)}
	p.captured, p.uses = map[string]bool{}, nil
	at := map[string]*yaml.Node{} // the keys of the rule
	keep := func(key string, take func(n *yaml.Node, path string)) func(n *yaml.Node, path string) {
		return func(n *yaml.Node, path string) {
			at[key] = n
			take(n, path)
		}
	}
	if !p.each(n, path, "a rule", yamlkeys.Keys{
		"name": func(n *yaml.Node, path string) {
			r.name = p.Text(n, path)
			if r.name == "" {
				p.wrong(n, path, "", "the name is empty")
			} else if p.named[r.name] {
				p.wrong(n, path, "", "two rules have the name %s", yamlkeys.Quoted(r.name))
			}
			p.named[r.name] = true
		},
		"deny": func(n *yaml.Node, path string) {
			is, ok := protoyaml.CoreScalar(n).(bool)
			if !ok {
				p.Report(n, path, "", "true or false is needed, not %s", yamlkeys.What(n))
			}
			r.deny = is
		},
		"identity": keep("identity", func(n *yaml.Node, path string) { r.identity = p.identity(n, path, "identity", nil) }),
		"node": func(n *yaml.Node, path string) {
			p.each(n, path, "node", yamlkeys.Keys{
				"id":       func(n *yaml.Node, path string) { r.node.ids = p.used(n, path) },
				"cluster":  func(n *yaml.Node, path string) { r.node.clusters = p.used(n, path) },
				"metadata": func(n *yaml.Node, path string) { p.entries(n, path, nil, &r.node.metadata, p.use) },
			})
		},
		"groups": keep("groups", func(n *yaml.Node, path string) { r.limits.groups = p.used(n, path) }),
		"types": keep("types", func(n *yaml.Node, path string) {
			r.limits.types = map[string]bool{}
			p.items(n, path, func(n *yaml.Node, path string) {
				if t := p.typ(n, path, p.Text(n, path)); t != nil {
					r.limits.types[t.URL] = true
				}
			})
		}),
		"names":   keep("names", func(n *yaml.Node, path string) { r.limits.names = p.names(n, path) }),
		"secrets": keep("secrets", func(n *yaml.Node, path string) { r.limits.secrets = p.patterns(n, path, true, p.use) }),
	}) {
		return
	}
	p.together(n, path, &r, at)
	for _, u := range p.uses {
		p.usable(u)
	}
	p.policy.rules = append(p.policy.rules, r)
}

// together reports keys of a rule that contradict each other.
func (p *parser) together(n *yaml.Node, path string, r *rule, at map[string]*yaml.Node) {
	l := &r.limits
	switch {
	case r.identity == nil && !r.deny && at["identity"] == nil:
		p.wrong(n, path, "identity: {kind: [none, mtls, jwt, unix]} matches everybody", "a rule needs an identity, unless it denies")
	case r.deny && (at["types"] != nil && len(l.types) == 0 || at["secrets"] != nil && len(l.secrets) == 0 || at["names"] != nil && len(l.names) == 0):
		p.wrong(n, path, "", "the rule denies nothing")
	case !r.deny && l.types[xds.Secret.URL]:
		p.wrong(at["types"], yamlkeys.Join(path, "types"), "use secrets: [NAMES]", "secrets can only be allowed by name, not by type")
	case r.deny && l.types[xds.Secret.URL] && l.secrets != nil:
		p.wrong(at["types"], yamlkeys.Join(path, "types"), "", "types denies all secrets, and secrets denies some by name")
	}
	for url := range l.names {
		if l.types != nil && l.types[url] == r.deny {
			p.wrong(at["names"], yamlkeys.Join(path, "names"), "", "names has a type that types %s", map[bool]string{true: "has already: all of it is denied", false: "does not have"}[r.deny])
			return
		}
	}
}

// identity parses the condition on identities. The mapping may also have the keys of more.
func (p *parser) identity(n *yaml.Node, path, of string, more yamlkeys.Keys) *identityCondition {
	var w identityCondition
	var kinds []string
	dependent := "" // a key whose meaning depends on the kind
	any := false
	key := func(take func(n *yaml.Node, path string)) func(n *yaml.Node, path string) {
		return func(n *yaml.Node, path string) { any = true; take(n, path) }
	}
	known := yamlkeys.Keys{
		"kind": key(func(n *yaml.Node, path string) {
			kinds = []string{}
			p.items(n, path, func(n *yaml.Node, path string) {
				switch word := p.Text(n, path); word {
				case MTLS, JWT, Unix:
					kinds = append(kinds, word)
				case "none":
					kinds = append(kinds, None)
				default:
					p.wrong(n, path, "", "a kind is mtls, jwt, unix or none, not %s", yamlkeys.Quoted(word))
				}
			})
		}),
		"dns": key(func(n *yaml.Node, path string) {
			w.dns = p.bound(n, path)
			for i := range w.dns {
				w.dns[i].Lower()
			}
		}),
		"uri":     key(func(n *yaml.Node, path string) { w.uris = p.bound(n, path) }),
		"subject": key(func(n *yaml.Node, path string) { dependent, w.subjects = "subject", p.bound(n, path) }),
		"issuer":  key(func(n *yaml.Node, path string) { dependent, w.issuers = "issuer", p.bound(n, path) }),
		"claims": key(func(n *yaml.Node, path string) {
			p.entries(n, path, nil, &w.claims, nil)
			p.boundClaims(n, path, w.claims)
		}),
		"uid": key(func(n *yaml.Node, path string) { w.uids = p.numbers(n, path) }),
		"gid": key(func(n *yaml.Node, path string) { w.gids = p.numbers(n, path) }),
	}
	for name, take := range more {
		known[name] = key(take)
	}
	if !p.each(n, path, of, known) {
		return &w
	}
	w.kinds = kinds
	switch {
	case !any:
		p.wrong(n, path, "kind: [none, mtls, jwt, unix] matches everybody", "%s needs a condition", protoyaml.WithArticle(of))
	case dependent != "" && len(kinds) != 1:
		p.wrong(n, path, "", "%s needs exactly one kind: an identity of another kind may have the same value by chance", dependent)
	}
	return &w
}

// numbers parses numbers of users or groups.
func (p *parser) numbers(n *yaml.Node, path string) []int {
	all := []int{}
	p.items(n, path, func(n *yaml.Node, path string) {
		v, ok := protoyaml.CoreScalar(n).(float64)
		switch {
		case ok && len(n.Value) > 1 && n.Value[0] == '0' && n.Style == 0:
			p.Report(n, path, "write it in decimal, without a 0 at its beginning", "readers differ about %s", yamlkeys.What(n))
		case !ok || v != math.Trunc(v) || v < 0 || v > math.MaxUint32:
			p.Report(n, path, "", "the number of a user or group is needed, not %s", yamlkeys.What(n))
		default:
			all = append(all, int(v))
		}
	})
	return all
}

// bound parses patterns that may capture.
func (p *parser) bound(n *yaml.Node, path string) []glob.Pattern {
	list := p.patterns(n, path, false, nil)
	p.capture(n, path, list)
	return list
}

func (p *parser) boundClaims(n *yaml.Node, path string, claims []entry) {
	for _, e := range claims {
		var list []glob.Pattern
		for _, v := range e.values {
			list = append(list, v.pattern)
		}
		p.capture(n, yamlkeys.Join(path, yamlkeys.Short(strings.Join(e.path, "."))), list)
	}
}

// capture records the captures of the patterns of one key. Each pattern must capture the same names,
// and in only one way.
func (p *parser) capture(n *yaml.Node, path string, list []glob.Pattern) {
	for i := range list {
		names := sorted(list[i].Captures())
		if i > 0 && !slices.Equal(names, sorted(list[0].Captures())) {
			p.wrong(n, path, "make it two rules", "all patterns here must capture the same")
			return
		}
		for _, name := range names {
			p.captured[name] = true
		}
		if len(names) == 0 {
			continue
		}
		if pair := list[i].Ambiguous(func(glob.Part, glob.Part) bool { return true }); pair != "" {
			p.wrong(n, path, "a capture has letters, digits, - and _: put another character between them", "the boundary between %s is ambiguous", pair)
		}
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// used parses patterns that may use captures.
func (p *parser) used(n *yaml.Node, path string) []glob.Pattern {
	return p.patterns(n, path, false, p.use)
}

func (p *parser) use(n *yaml.Node, path string, w glob.Pattern) {
	p.uses = append(p.uses, use{n, path, w})
}

// usable reports errors in the use of captures.
func (p *parser) usable(u use) {
	for _, name := range u.pattern.Captures() {
		if !p.captured[name] {
			p.wrong(u.node, u.path, "* matches any word", "{%s} is not captured in identity", name)
			return
		}
	}
	pair := u.pattern.Ambiguous(func(a, b glob.Part) bool { return a.Kind == glob.Capture || b.Kind == glob.Capture })
	if pair != "" {
		p.WarnAs(findings.AmbiguousRule, u.node, u.path, `put a character between them that is not a letter, digit, - or _`, "the boundary between %s in %s is ambiguous: the pattern may match another identity than intended, as x-y-z can be of x or of x-y", pair, yamlkeys.Quoted(u.pattern.String()))
	}
}

// patterns parses a pattern or a list of patterns; none allows an empty list.
func (p *parser) patterns(n *yaml.Node, path string, none bool, use func(*yaml.Node, string, glob.Pattern)) []glob.Pattern {
	list := []glob.Pattern{}
	p.items(n, path, func(n *yaml.Node, path string) {
		if w, ok := p.pattern(n, path); ok {
			list = append(list, w)
			if use != nil {
				use(n, path, w)
			}
		}
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 && !none {
		p.wrong(n, path, "", "the list is empty: it matches nothing")
	}
	return list
}

func (p *parser) pattern(n *yaml.Node, path string) (glob.Pattern, bool) {
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[1].Tag == "!!null" {
		p.Report(n, path, "put it in quotes", "a string is needed, not a mapping")
		return glob.Pattern{}, false
	}
	before := p.Errors()
	text := p.Text(n, path)
	if p.Errors() > before {
		return glob.Pattern{}, false
	}
	w, err := glob.CompileCaptures(text)
	switch {
	case text == "":
		p.wrong(n, path, "** matches anything", "the pattern is empty")
	case err != nil:
		p.wrong(n, path, "", "%s", err)
	default:
		return w, true
	}
	return glob.Pattern{}, false
}

// names parses the visible names by type.
func (p *parser) names(n *yaml.Node, path string) map[string][]glob.Pattern {
	flat := p.Flat(n, path)
	if flat == nil {
		return nil
	}
	names := map[string][]glob.Pattern{}
	for i := 0; i+1 < len(flat.Content); i += 2 {
		key := flat.Content[i]
		at := yamlkeys.Join(path, yamlkeys.Short(key.Value))
		t := p.typ(key, at, key.Value)
		switch {
		case t == nil:
		case t == xds.Secret:
			p.wrong(key, at, "", "names of secrets belong below secrets")
		case names[t.URL] != nil:
			p.wrong(key, at, "", "%s is there twice", t)
		default:
			names[t.URL] = p.patterns(yamlkeys.Follow(flat.Content[i+1]), at, true, p.use)
		}
	}
	return names
}

// typ parses a type: its short name, or its URL.
func (p *parser) typ(n *yaml.Node, path, word string) *xds.Type {
	const prefix = "type.googleapis.com/"
	var shorts []string
	for _, t := range xds.Types() {
		if strings.EqualFold(word, t.Short) || word == t.URL || prefix+word == t.URL {
			return t
		}
		if l := t.Legacy(); l != nil && (strings.EqualFold(word, l.Short) || word == l.URL || prefix+word == l.URL) {
			p.wrong(n, path, "", "the rules of %s also apply to its v2 type: remove this one", t)
			return nil
		}
		shorts = append(shorts, t.Short)
	}
	if !strings.Contains(word, ".") {
		p.wrong(n, path, "write "+strings.Join(shorts, ", ")+" or a type URL", "%s is not a type of resources", yamlkeys.Quoted(word))
		return nil
	}
	if !strings.Contains(word, "/") {
		word = prefix + word
	}
	p.WarnAs(findings.AmbiguousRule, n, path, "", "the server does not know the type %s: it matches only resources of exactly this URL", yamlkeys.Quoted(word))
	return xds.TypeOf(word)
}

// entries parses conditions on metadata or claims below some keys.
func (p *parser) entries(n *yaml.Node, path string, below []string, to *[]entry, use func(*yaml.Node, string, glob.Pattern)) {
	if len(below) >= nodemeta.MaxDepth {
		p.wrong(n, path, "", "nested more than %d deep", nodemeta.MaxDepth)
		return
	}
	flat := p.Flat(n, path)
	if flat == nil || !p.count(n, path) {
		return
	}
	if len(flat.Content) == 0 {
		p.wrong(n, path, "", "a key is needed")
	}
	for i := 0; i+1 < len(flat.Content) && p.left >= 0; i += 2 {
		key, value := flat.Content[i].Value, yamlkeys.Follow(flat.Content[i+1])
		at, keys := yamlkeys.Join(path, yamlkeys.Short(key)), append(slices.Clip(below), key)
		if value.Kind == yaml.MappingNode {
			p.entries(value, at, keys, to, use)
		} else {
			*to = append(*to, entry{keys, p.values(value, at, use)})
		}
	}
}

// values parses a pattern, a number or a bool, or a list of them.
func (p *parser) values(n *yaml.Node, path string, use func(*yaml.Node, string, glob.Pattern)) (list []value) {
	p.items(n, path, func(n *yaml.Node, path string) {
		if use != nil { // metadata of a node, which Envoy may read from a file
			p.Portable(n, path)
		}
		switch v := protoyaml.CoreScalar(n).(type) {
		case bool, float64:
			list = append(list, value{other: v})
		default:
			if w, ok := p.pattern(n, path); ok {
				list = append(list, value{pattern: w})
				if use != nil {
					use(n, path, w)
				}
			}
		}
	})
	if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		p.wrong(n, path, "", "the list is empty: it matches nothing")
	}
	return list
}
