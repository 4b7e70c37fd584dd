package daemon

import (
	"bytes"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
	"github.com/chancery-xds/chancery/internal/envoy"
	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// forgetAfter is how long secrets of resources that are no longer served are remembered: a client may refuse
// such a resource late.
const forgetAfter = 5 * time.Minute

// knownSecrets are the secrets in resources that a relay serves or has served lately. They are removed from
// texts of clients before the texts are shown. A search costs time in proportion to the resources with
// secrets, which are mostly few.
type knownSecrets struct {
	types   *envoy.Types
	secrets *internalsecret.Finder
	served  func(t *xds.Type, name string) *xds.Resource // nil: the resource is not served

	mu   sync.Mutex // never held during I/O
	all  map[string]*typeSecrets
	n    int // resources in all
	most int // if n is larger, resources that are gone for long are forgotten
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
	whole bool      // texts are all secrets of the resource
	gone  time.Time // when the resource was first seen not to be served; zero: it is served, or is about to be
}

func newKnownSecrets(types *envoy.Types, served func(*xds.Type, string) *xds.Resource) *knownSecrets {
	return &knownSecrets{types: types, secrets: internalsecret.NewFinder(types), served: served, all: map[string]*typeSecrets{}, most: 1024}
}

// note remembers the secrets of a resource that is about to be served: a client may refuse it at once.
func (c *knownSecrets) note(r *xds.Resource, now time.Time) {
	if r.Type.Is(xds.Secret) || r.Type.Is(xds.Secret.Legacy()) { // texts about SDS are not shown at all
		return
	}
	found := &resourceSecrets{body: r.Body}
	if m, err := xdsclient.Unmarshal(c.types, r); err == nil {
		found.whole = c.secrets.Texts(m, func(text string) { found.texts = append(found.texts, text) })
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
func (c *knownSecrets) look(of *typeSecrets, now time.Time) {
	for name, all := range of.by {
		served := c.served(of.typ, name)
		kept := all[:0]
		for _, found := range all {
			switch {
			case served != nil && bytes.Equal(found.body, served.Body):
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

// redacted returns a text of a client about a type, without the secrets of the type. It returns false if not
// all secrets are known: then the text must not be shown.
func (c *knownSecrets) redacted(t *xds.Type, text string, now time.Time) (string, bool) {
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
	return internalsecret.Hide(text, texts), true
}
