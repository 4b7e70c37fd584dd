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

// goneTime is for how long it is remembered which secrets were in what is not served any more: a client
// may refuse it late.
const forgetAfter = 5 * time.Minute

// knownSecrets are the secrets of what a relay serves, and served lately: what a client says is shown
// without them. To look for them costs what the resources with secrets are, which mostly are few.
type knownSecrets struct {
	types   *envoy.Types
	secrets *internalsecret.Finder
	served  func(t *xds.Type, name string) *xds.Resource // nil: none

	mu   sync.Mutex // held for memory only
	all  map[string]*typeSecrets
	n    int // resources in all
	most int // of more those that went long ago are forgotten
}

// confidential is what there is of a type.
type typeSecrets struct {
	typ *xds.Type
	by  map[string][]*resourceSecrets // name
}

// A confidence is a resource with secrets.
type resourceSecrets struct {
	body  []byte
	texts []string
	whole bool      // these are all
	gone  time.Time // since when it is known not to be served; zero: it is, or is about to be
}

func newKnownSecrets(types *envoy.Types, served func(*xds.Type, string) *xds.Resource) *knownSecrets {
	return &knownSecrets{types: types, secrets: internalsecret.NewFinder(types), served: served, all: map[string]*typeSecrets{}, most: 1024}
}

// note takes in what is about to be served: a client may refuse it at once.
func (c *knownSecrets) note(r *xds.Resource, now time.Time) {
	if r.Type.Is(xds.Secret) || r.Type.Is(xds.Secret.Legacy()) { // of which nothing is told anyway
		return
	}
	is := &resourceSecrets{body: r.Body}
	if m, err := xdsclient.Unmarshal(c.types, r); err == nil {
		is.whole = c.secrets.Texts(m, func(text string) { is.texts = append(is.texts, text) })
	}
	if is.whole && len(is.texts) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.all[r.Type.URL]
	if of == nil {
		of = &typeSecrets{r.Type, map[string][]*resourceSecrets{}}
		c.all[r.Type.URL] = of
	}
	of.by[r.Name] = append(of.by[r.Name], is)
	c.n++
	if c.n > c.most {
		for _, of := range c.all {
			c.look(of, now)
		}
		c.most = max(1024, 2*c.n)
	}
}

// look forgets what of a type was not served for long enough.
func (c *knownSecrets) look(of *typeSecrets, now time.Time) {
	for name, all := range of.by {
		served := c.served(of.typ, name)
		kept := all[:0]
		for _, is := range all {
			switch {
			case served != nil && bytes.Equal(is.body, served.Body):
				is.gone = time.Time{}
			case is.gone.IsZero():
				is.gone = now
			}
			if is.gone.IsZero() || now.Sub(is.gone) <= forgetAfter {
				kept = append(kept, is)
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

// redacted is what a client says of a type without the secrets of that. It returns false if not all are known:
// then nothing of it may be shown.
func (c *knownSecrets) redacted(t *xds.Type, text string, now time.Time) (string, bool) {
	c.mu.Lock()
	of := c.all[t.URL]
	var texts []string
	whole := true
	if of != nil {
		c.look(of, now)
		for _, all := range of.by {
			for _, is := range all {
				texts, whole = append(texts, is.texts...), whole && is.whole
			}
		}
	}
	c.mu.Unlock()
	if !whole {
		return "", false
	}
	return internalsecret.Hide(text, texts), true
}
