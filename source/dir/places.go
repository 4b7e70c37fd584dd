package dir

import "github.com/chancery-xds/chancery/xds"

// Place returns where a resource stands that is served, by its name or an alias, such as
// "clusters.yaml:12:3", and "" if there is none. It may be called by anyone at any time.
func (s *Source) Place(t *xds.Type, name string) string {
	w := s.served.Load()
	if w == nil || w.types[t.URL] == nil {
		return ""
	}
	c := w.types[t.URL]
	if l, ok := c.at[name]; ok {
		return l.Pos.String()
	}
	if l, ok := c.aliases[name]; ok {
		return l.Pos.String()
	}
	return ""
}

// serves notes what is served now.
func (s *Source) serves(w world) {
	s.world = w
	s.served.Store(&w)
	s.expiry.of(w)
}
