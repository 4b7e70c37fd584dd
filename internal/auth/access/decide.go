package access

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
	"github.com/chancery-xds/chancery/xds"
)

// Error returns the reason and the rule.
func (d *Denied) Error() string {
	if d.Rule == "" {
		return d.Reason
	}
	return d.Reason + " (rule " + yamlkeys.Quoted(d.Rule) + ")"
}

// Told reports whether [Options.Denied] received this denial. Then the server need not log it again.
func (d *Denied) Told() bool { return d.reported }

// GRPCStatus returns the status for the client: PERMISSION_DENIED or UNAUTHENTICATED.
func (d *Denied) GRPCStatus() *status.Status {
	code := codes.PermissionDenied
	if d.Unauthenticated {
		code = codes.Unauthenticated
	}
	return status.New(code, d.Error())
}

// denied returns a denial by a rule.
func (r *rule) denied(reason string) *Denied {
	return &Denied{Reason: reason, Rule: r.name, Place: r.place}
}

// An appliedRule is a rule that applies to a node, with its captures.
type appliedRule struct {
	rule *rule // nil: the default policy, which shows all resources
	with binding
}

func (p *Policy) decide(id *Identity, from *xds.Node) (Grant, error) {
	if from == nil {
		from = &xds.Node{}
	}
	n := &nodeOf{Node: from}
	g := &grant{id: id, node: from.ID}
	about := false    // a rule lets this identity be some node
	var named []*rule // the rules that let this identity be some node
	names := id.names()
	for i := range p.rules {
		r := &p.rules[i]
		all, tooMany := r.identity.bindings(id, names)
		if tooMany {
			return Grant{}, r.denied(id.called() + " has too many names to decide about")
		}
		if len(all) > 0 && !r.deny {
			about = true
			named = append(named, r)
		}
		for _, b := range all {
			switch {
			case !r.matchesNode(id, n, b):
			case r.deny:
				g.denials = append(g.denials, appliedRule{r, b})
			default:
				g.portions = append(g.portions, appliedRule{r, b})
			}
		}
	}
	if len(g.portions) == 0 {
		if about || !p.otherwise {
			return Grant{}, deniedNode(id, from.ID, named)
		}
		if !id.own(from.ID) {
			return Grant{}, deniedOwnName(id, from.ID)
		}
		g.portions = []appliedRule{{}}
	}
	for _, d := range g.denials {
		if l := &d.rule.limits; l.empty() && l.groups == nil {
			return Grant{}, d.rule.denied(id.called() + " may not be node " + yamlkeys.Quoted(from.ID))
		}
	}
	g.needsGroups = slices.ContainsFunc(slices.Concat(g.portions, g.denials), func(p appliedRule) bool { return p.rule != nil && p.rule.limits.groups != nil })
	_ = g.compile(nil) // an error here depends on the groups, so In returns it
	return Grant{g}, nil
}

// deniedNode returns the denial of an identity that no rule lets be the node. The list named has the
// rules for the identity.
func deniedNode(id *Identity, node string, named []*rule) *Denied {
	d := &Denied{Reason: id.called() + " may not be node " + yamlkeys.Quoted(node)}
	if len(named) == 0 {
		d.Reason += ": no rule matches it"
		return d
	}
	names := make([]string, 0, 3)
	for i, r := range named {
		if i == 3 {
			names[2] += ", …"
			break
		}
		names = append(names, r.name)
	}
	d.Rule, d.Place = strings.Join(names, ", "), named[0].place
	return d
}

// deniedOwnName returns the denial if the node ID is not a name of the identity.
func deniedOwnName(id *Identity, node string) *Denied {
	why := ": the node's id must be one of its DNS names or URIs, or the last segment of its SPIFFE ID"
	switch {
	case node == "":
		why = ": it has no id"
	case len(id.DNS)+len(id.URIs) == 0:
		why = ": it has neither a DNS name nor a URI"
	case id.own(glob.Lower(node)):
		why += " (it is, in lower case)"
	}
	return &Denied{Reason: id.called() + " may not be node " + yamlkeys.Quoted(node) + why}
}
