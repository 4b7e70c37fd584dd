package explain

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// A parent is a resource of the node that refers to the explained resource. Clients subscribe to the
// resources that their configuration refers to.
type parent struct {
	xds.Ref
	place string // place of the reference
	state *protocol.NameState
}

// maxParents is the maximum number of parents in an explanation. When examine has found as many
// problems, it no longer looks for missing references.
const maxParents = 20

// referrers returns the parents: resources of the node that refer to the explained resource by name.
func (c *chain) referrers() (all []parent) {
	for _, t := range c.t.ReferredBy() {
		for i, group := range c.decision.Groups {
			for r := range c.before.View(group).Table(t).All() {
				if !refersTo(r, c.t, c.name) || c.hidden(i, t, r.Name) {
					continue
				}
				all = append(all, parent{Ref: xds.Ref{Type: t, Name: r.Name}})
				if len(all) == maxParents {
					return all
				}
			}
		}
	}
	return all
}

// maxUsers is the maximum number of resources that one call of Unused reads.
const maxUsers = 10_000

// Unused returns a warning about registered endpoints that no served resource uses. It is "" if one does, or if
// there are too many resources to look.
func (e *Explainer) Unused(name string) string {
	s, name, n := e.d.Snapshot(), xds.CanonicalName(name), 0
	for _, t := range xds.Endpoint.ReferredBy() {
		for _, group := range s.Groups() {
			for r := range s.View(group).Table(t).All() {
				n++
				if n > maxUsers || refersTo(r, xds.Endpoint, name) {
					return ""
				}
			}
		}
	}
	text := fmt.Sprintf("no served cluster uses EDS with the name %s", quote(name))
	if near := e.d.Source.Nearest(xds.Cluster, name); near != "" && near != name {
		text += fmt.Sprintf(": did you mean %s?", quote(near))
	}
	return text
}

func refersTo(r *xds.Resource, t *xds.Type, name string) bool {
	return slices.ContainsFunc(r.Refs, func(ref xds.Ref) bool { return ref.Name == name && ref.Type.Is(t) })
}

// hidden reports whether an earlier group of the node has a resource with the same name.
func (c *chain) hidden(group int, t *xds.Type, name string) bool {
	return slices.ContainsFunc(c.decision.Groups[:group], func(g string) bool { return c.before.View(g).Table(t).Lookup(name) != nil })
}

// place sets the place of the first parent's reference.
func (c *chain) place() {
	for i := range c.parents[:min(len(c.parents), 1)] {
		p := &c.parents[i]
		for _, group := range c.decision.Groups {
			if s, ok := c.e.d.Source.Lookup(group, p.Type, p.Name); ok {
				p.place = c.e.reference(s.Loaded, xds.Ref{Type: c.t, Name: c.name})
				break
			}
		}
	}
}

// reference returns the place of the field in which a resource refers to another. If the field is not
// found, it returns the place of the resource.
func (e *Explainer) reference(l dir.Loaded, to xds.Ref) string {
	m := e.message(l.Resource)
	if m == nil {
		return l.Pos.String()
	}
	if path := refs.Places(e.d.Source.Types(), m)[to]; path != "" {
		return e.d.Source.FieldAt(l, path)
	}
	return l.Pos.String()
}

// message decodes a resource. The result is nil if that fails.
func (e *Explainer) message(r *xds.Resource) proto.Message {
	types := e.d.Source.Types()
	typ, err := types.FindMessageByURL(r.Type.URL)
	if err != nil {
		return nil
	}
	m := typ.New().Interface()
	if (proto.UnmarshalOptions{Resolver: types}).Unmarshal(r.Body, m) != nil {
		return nil
	}
	return m
}

// mainParent returns the first parent, or nil.
func (c *chain) mainParent() *parent {
	if len(c.parents) == 0 {
		return nil
	}
	return &c.parents[0]
}

// referenced adds the link "referenced": which resources refer to the explained one? It adds no link for
// a type that clients subscribe to as a whole.
func (c *chain) referenced() {
	p := c.mainParent()
	wanted := c.is != nil && c.is.Why != protocol.NotWanted
	switch {
	case p == nil && (c.t.Implicit || c.is != nil && c.is.Why == protocol.ByWildcard):
	case p == nil && wanted:
		c.ok(referenced, "", "no resource of the node refers to it by name, but the client subscribes to it")
	case p == nil && (c.at == nil && !c.has(c.before) || !c.connected()):
		c.unknown(referenced, "no resource of the node refers to it by name")
	case p == nil:
		c.breaks(referenced, "", fmt.Sprintf("refer to %s in a resource that the node gets (%s), or name it in the bootstrap of the client", c.title(), c.referrersOf()),
			"no resource of the node refers to it by name, so the client does not subscribe to it")
	case wanted || !c.connected() || p.state != nil && p.state.State == protocol.StateSynced:
		c.ok(referenced, p.place, "%s refers to it", c.parentList())
	case p.state == nil || p.state.State == protocol.StateUnwanted:
		c.breaks(referenced, p.place, fmt.Sprintf("the client must have %s first: %s", title(p.Type, p.Name), c.command(p.Type, p.Name)),
			"%s refers to it, and the client does not subscribe to that either", title(p.Type, p.Name))
	default:
		c.breaks(referenced, p.place, fmt.Sprintf("the client must accept %s first: %s", title(p.Type, p.Name), c.command(p.Type, p.Name)),
			"%s refers to it, and the client has not accepted that (%s), so it does not ask", title(p.Type, p.Name), c.e.stateOf(p.state))
	}
}

func (c *chain) parentList() string {
	var all []string
	for _, p := range c.parents {
		all = append(all, title(p.Type, p.Name))
	}
	return list(all, 3)
}

// referrersOf returns a list of the types whose resources may refer to the explained resource.
func (c *chain) referrersOf() string {
	var all []string
	for _, t := range c.t.ReferredBy() {
		all = append(all, t.String())
	}
	return strings.Join(all, ", ")
}

// A fault is a known problem of a resource.
type fault struct {
	code        findings.Code
	path        string
	place, text string
}

// examine returns the known problems of a resource: faults that Envoy is known to refuse, and references
// to resources that the node does not get.
func (c *chain) examine(l dir.Loaded) (all []fault) {
	for _, p := range c.e.d.Source.Examine(l) {
		all = append(all, faultOf(p))
	}
	if c.is == nil || c.is.State != protocol.StateSynced { // of two listeners on a socket, the client may have accepted this one
		found, _ := c.e.d.Source.SocketClashes(c.decision.Groups, l)
		for _, p := range found {
			all = append(all, faultOf(p))
		}
	}
	for _, ref := range l.Refs {
		if ref.Name == xds.Wildcard || ref.Type.V2 || c.e.d.Source.InBootstrap(c.decision.Groups, ref) || slices.ContainsFunc(c.decision.Groups, func(g string) bool { return hasName(c.before.View(g), ref.Type, ref.Name) }) {
			continue
		}
		text := fmt.Sprintf("it refers to %s, which %s has", title(ref.Type, ref.Name), c.e.nowhere())
		if others := c.e.d.Source.Occurrences(ref.Type, ref.Name); len(others) > 0 && others[0].Served {
			text = fmt.Sprintf("it refers to %s, which only group %s has", title(ref.Type, ref.Name), quote(others[0].Group))
		} else if len(others) > 0 {
			text = fmt.Sprintf("it refers to %s, which is not loaded", title(ref.Type, ref.Name))
		} else if near := c.e.d.Source.Nearest(ref.Type, ref.Name); near != "" {
			text += fmt.Sprintf(" (did you mean %s?)", quote(near))
		}
		all = append(all, fault{code: findings.Dangling, place: c.e.reference(l, ref), text: text + unlessBootstrap(ref.Type)})
		if len(all) >= maxParents {
			break
		}
	}
	return all
}

// unlessBootstrap returns the end of a text about a missing resource: clusters and secrets may come from
// the client's bootstrap.
func unlessBootstrap(t *xds.Type) string {
	if t.Is(xds.Cluster) || t.Is(xds.Secret) {
		return ", unless the client has it from its bootstrap"
	}
	return ""
}

func faultOf(p findings.Problem) fault {
	return fault{p.CodeOrOther(), p.Path, placeOf(p), wrongText(p)}
}
