package access

import "github.com/chancery-xds/chancery/xds"

type rule struct{}

type grant struct{}

type filter struct{}

func (p *Policy) decide(id *Identity, node *xds.Node) (Grant, error) {
	return Grant{}, &Denied{Reason: "no rules yet"}
}
func (g *grant) in(groups []string) (Grant, error) { return Grant{}, &Denied{Reason: "no rules yet"} }
func (g *grant) filter(t *xds.Type) *filter        { return nil }
func (g *grant) key() string                       { return "" }
func (g *grant) rules() []string                   { return nil }
func (f *filter) allows(name string) bool          { return false }

// Error returns the reason, with the rule.
func (d *Denied) Error() string {
	if d.Rule == "" {
		return d.Reason
	}
	return d.Reason + " (rule " + d.Rule + ")"
}

// String says whose identity it is, in one line, without claims.
func (id Identity) String() string { return id.Kind }
