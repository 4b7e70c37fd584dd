package dir

import (
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// mostOld is how many resources with secrets are remembered that are not served any more.
const mostOld = 1024

// holders are the resources with secrets that are served, or were served recently, by type URL. They
// do not change once made.
type holders map[string][]*holder

// A holder is a resource with secrets.
type holder struct {
	body   *xds.Resource
	gone   time.Time // since when it is not served; zero: it is served
	seldom sync.Once // guards texts and all, which few resources ever need: clients seldom refuse one
	texts  []string
	all    bool // texts has all of its secrets
}

// after returns the holders once these worlds are served.
func (h holders) after(now time.Time, worlds ...world) holders {
	next, known, served, old := holders{}, map[*xds.Resource]*holder{}, map[*xds.Resource]bool{}, 0
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
					one = &holder{body: l.Resource}
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
			if now.Sub(gone) <= goneTime && old <= mostOld {
				next[url] = append(next[url], &holder{body: one.body, gone: gone})
			}
		}
	}
	return next
}

// secrets returns the texts of all secrets in resources of a type. It returns false if some are not
// known.
func (h holders) secrets(url string, rd *reader) (texts []string, all bool) {
	all = true
	for _, one := range h[url] {
		one.seldom.Do(func() {
			m, err := rd.message(url, one.body.Body)
			one.all = err == nil && rd.secrets.Texts(m, func(text string) { one.texts = append(one.texts, text) })
		})
		texts, all = append(texts, one.texts...), all && one.all
	}
	return texts, all
}

// hides records the resources that will be served. It comes before the commit, because a client may
// refuse one at once.
func (s *Source) hides(worlds ...world) {
	h := holders{}
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
