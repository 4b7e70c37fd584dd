package dir

import (
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// maxOldHolders is how many resources with secrets are remembered that are not served any more.
const maxOldHolders = 1024

// secretHolders are the resources with secrets that are served, or were served recently, by type URL.
// They do not change once made.
type secretHolders map[string][]*secretHolder

// A secretHolder is a resource with secrets.
type secretHolder struct {
	body  *xds.Resource
	gone  time.Time // since when it is not served; zero: it is served
	once  sync.Once // guards texts and all, which few resources ever need: clients seldom refuse one
	texts []string
	all   bool // texts has all of its secrets
}

// after returns the holders once these groups are served.
func (h secretHolders) after(now time.Time, worlds ...groupContent) secretHolders {
	next, known, served, old := secretHolders{}, map[*xds.Resource]*secretHolder{}, map[*xds.Resource]bool{}, 0
	for _, all := range h {
		for _, one := range all {
			known[one.body] = one
		}
	}
	for _, w := range worlds {
		for url, c := range w.types {
			if c.typ.Is(xds.Secret) || c.typ.Is(xds.Secret.Legacy()) { // for these types, no text of a client is shown at all
				continue
			}
			for _, l := range c.at {
				if l.Secret == "" || served[l.Resource] {
					continue
				}
				served[l.Resource] = true
				one := known[l.Resource]
				if one == nil || !one.gone.IsZero() {
					one = &secretHolder{body: l.Resource}
				}
				next[url] = append(next[url], one)
			}
		}
	}
	for url, all := range h {
		for _, one := range all {
			if served[one.body] {
				continue
			}
			gone := one.gone
			if gone.IsZero() {
				gone = now
			}
			old++
			if now.Sub(gone) <= rememberTime && old <= maxOldHolders {
				next[url] = append(next[url], &secretHolder{body: one.body, gone: gone})
			}
		}
	}
	return next
}

// secrets returns the texts of all secrets in resources of a type. It returns false if some are not
// known.
func (h secretHolders) secrets(url string, rd *reader) (texts []string, all bool) {
	all = true
	for _, one := range h[url] {
		one.once.Do(func() {
			m, err := rd.message(url, one.body.Body)
			one.all = err == nil && rd.secrets.Texts(m, func(text string) { one.texts = append(one.texts, text) })
		})
		texts, all = append(texts, one.texts...), all && one.all
	}
	return texts, all
}

// rememberSecrets records the resources that will be served. It comes before the commit, because a client may
// refuse one at once.
func (s *Source) rememberSecrets(worlds ...groupContent) {
	h := secretHolders{}
	if before := s.holders.Load(); before != nil {
		h = *before
	}
	h = h.after(time.Now(), worlds...)
	s.holders.Store(&h)
}

// Redacted removes secrets from an error text of a client about a type. It removes those of resources
// that are served, or were served in the last 5 minutes. It returns false if not all of their secrets
// are known: then do not show any part of the text.
func (s *Source) Redacted(t *xds.Type, text string) (shown string, ok bool) {
	h := s.holders.Load()
	if h == nil || len((*h)[t.URL]) == 0 {
		return text, true
	}
	texts, all := h.secrets(t.URL, s.reader)
	if !all {
		return "", false
	}
	return secrets.Hide(text, texts), true
}
