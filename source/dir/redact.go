package dir

import (
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/xds"
)

// mostOld is how many resources with secrets are remembered that are not served any more.
const mostOld = 1024

// holders are the resources with secrets in them that are served, or were lately, by type
// URL. They are not changed once made.
type holders map[string][]*holder

// A holder is a resource with secrets.
type holder struct {
	body   *xds.Resource
	gone   time.Time // when it was not served any more; zero: it is
	seldom sync.Once // few are ever refused
	texts  []string
	all    bool // of its secrets
}

// after returns those that may be refused when these are served from now on.
func (h holders) after(now time.Time, worlds ...world) holders {
	next, known, served, old := holders{}, map[*xds.Resource]*holder{}, map[*xds.Resource]bool{}, 0
	for _, all := range h {
		for _, one := range all {
			known[one.body] = one
		}
	}
	for _, w := range worlds {
		for url, c := range w.types {
			if c.typ.Is(xds.Secret) || c.typ.Is(xds.Secret.Legacy()) { // of which nothing is told anyway
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
			if old++; now.Sub(gone) <= goneTime && old <= mostOld {
				next[url] = append(next[url], &holder{body: one.body, gone: gone})
			}
		}
	}
	return next
}

// secrets returns the texts of all secrets in resources of a type; false if not all are
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

// hides notes what is about to be served: a client may refuse it at once.
func (s *Source) hides(worlds ...world) {
	h := holders{}
	if before := s.holders.Load(); before != nil {
		h = *before
	}
	h = h.after(time.Now(), worlds...)
	s.holders.Store(&h)
}

// Redacted returns what a client says of a type without the secrets that resources of it
// have, or had in the last 5 minutes. It returns false if not all of them are known: then
// nothing of the text may be shown. It may be called by anyone at any time.
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
