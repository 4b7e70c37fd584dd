package access

// Lenses returns the number of lenses and views in use.
func (s *Source[W]) Lenses() int {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return len(s.shared.lenses) + len(s.shared.views)
}
