package access

import (
	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// A Condition is a condition on identities, as below the key identity in an access.yaml. The zero Condition
// matches no identity.
type Condition struct{ w *identityCondition }

// Matches reports whether an identity matches. A connection without a proof never does.
func (c Condition) Matches(id *Identity) bool {
	if c.w == nil || id.Kind == None {
		return false
	}
	all, tooMany := c.w.bindings(id, id.names())
	return len(all) > 0 && !tooMany
}

// A ConditionReader reads conditions in another settings file. Its problems have the given code.
type ConditionReader struct{ p *parser }

// NewConditionReader returns a reader for the file of r.
func NewConditionReader(r *yamlkeys.Reader, code findings.Code) *ConditionReader {
	return &ConditionReader{newParser(r, code)}
}

// Read reads a mapping with a condition, which messages call by the name of. The mapping may have more keys.
func (c *ConditionReader) Read(n *yaml.Node, path, of string, more yamlkeys.Keys) Condition {
	clear(c.p.captured)
	return Condition{c.p.identity(n, path, of, more)}
}

// OfUser returns the condition that the process at the other end of a unix socket is of a user.
func OfUser(uid int) Condition { return Condition{&identityCondition{uids: []int{uid}}} }

// Claims returns the names of the claims that the condition reads.
func (c Condition) Claims() (names []string) {
	if c.w != nil {
		for _, e := range c.w.claims {
			names = append(names, e.path[0])
		}
	}
	return names
}
