package relay

import "github.com/chancery-xds/chancery/xds"

// Names is the number of known names of a type.
func (s *Source) Names(t *xds.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.types[t.URL]; k != nil {
		return len(k.names)
	}
	return 0
}

// Unusable is the number of names of a type with an unusable resource.
func (s *Source) Unusable(t *xds.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.types[t.URL]; k != nil {
		return len(k.unusable)
	}
	return 0
}
