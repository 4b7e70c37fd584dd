package relay

import "github.com/chancery-xds/chancery/xds"

// Names is how many names of a type are known.
func (s *Source) Names(t *xds.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.types[t.URL]; k != nil {
		return len(k.names)
	}
	return 0
}

// Unusable is how many names of a type are known to have what cannot be used.
func (s *Source) Unusable(t *xds.Type) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.types[t.URL]; k != nil {
		return len(k.unusable)
	}
	return 0
}
