package secrets

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/xds"
)

// forgetAfter is how long this server remembers the secrets of a resource that is no longer served: a
// client may refuse the resource late.
const forgetAfter = 5 * time.Minute

// Known are the secrets in resources that a server serves or has served lately. Texts of
// clients are shown without these secrets. The cost of a search grows with the number of resources
// that contain secrets, which are usually few. It is safe for concurrent use.
type Known struct {
	secrets *Finder
	served  func(t *xds.Type, name string, body []byte) bool

	mu   sync.Mutex // never held during I/O
	all  map[string]*typeSecrets
	n    int // number of remembered resources
	most int // if n is larger, old resources are forgotten
}

// typeSecrets are the resources of a type that contain secrets.
type typeSecrets struct {
	typ *xds.Type
	by  map[string][]*resourceSecrets // key: the name
}

// resourceSecrets are the secrets of one resource.
type resourceSecrets struct {
	body  []byte
	texts []string
	whole bool      // texts has all secrets of the resource
	gone  time.Time // when look first saw that the resource is not served; zero: it is served, or will be at once
}

// NewKnown returns an empty Known. The function served reports whether a resource with this body is served.
func NewKnown(types Types, served func(t *xds.Type, name string, body []byte) bool) *Known {
	return &Known{secrets: NewFinder(types), served: served, all: map[string]*typeSecrets{}, most: 1024}
}

// Note remembers the secrets of a resource that is about to be served: a client may refuse it at once.
func (c *Known) Note(r *xds.Resource, now time.Time) {
	if r.Type.Is(xds.Secret) || r.Type.Is(xds.Secret.Legacy()) { // texts about SDS are not shown at all
		return
	}
	found := &resourceSecrets{body: r.Body}
	if t, err := c.secrets.types.FindMessageByURL(r.Type.URL); err == nil {
		m := t.New().Interface()
		if (proto.UnmarshalOptions{Resolver: c.secrets.types}).Unmarshal(r.Body, m) == nil {
			found.whole = c.secrets.Texts(m, func(text string) { found.texts = append(found.texts, text) })
		}
	}
	if found.whole && len(found.texts) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.all[r.Type.URL]
	if of == nil {
		of = &typeSecrets{r.Type, map[string][]*resourceSecrets{}}
		c.all[r.Type.URL] = of
	}
	of.by[r.Name] = append(of.by[r.Name], found)
	c.n++
	if c.n > c.most {
		for _, of := range c.all {
			c.look(of, now)
		}
		c.most = max(1024, 2*c.n)
	}
}

// look forgets resources of a type that have not been served for forgetAfter.
func (c *Known) look(of *typeSecrets, now time.Time) {
	for name, all := range of.by {
		kept := all[:0]
		for _, found := range all {
			switch {
			case c.served(of.typ, name, found.body):
				found.gone = time.Time{}
			case found.gone.IsZero():
				found.gone = now
			}
			if found.gone.IsZero() || now.Sub(found.gone) <= forgetAfter {
				kept = append(kept, found)
			}
		}
		c.n -= len(all) - len(kept)
		clear(all[len(kept):])
		of.by[name] = kept
		if len(kept) == 0 {
			delete(of.by, name)
		}
	}
}

// Redacted returns a client's text about a type, without the secrets in the type's resources. It
// returns false if some of these secrets are unknown: then the text must not be shown.
func (c *Known) Redacted(t *xds.Type, text string, now time.Time) (string, bool) {
	c.mu.Lock()
	of := c.all[t.URL]
	var texts []string
	whole := true
	if of != nil {
		c.look(of, now)
		for _, all := range of.by {
			for _, found := range all {
				texts, whole = append(texts, found.texts...), whole && found.whole
			}
		}
	}
	c.mu.Unlock()
	if !whole {
		return "", false
	}
	return Hide(text, texts), true
}
