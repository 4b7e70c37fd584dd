package access

// Lenses returns how many lenses and views are in use.
func (s *Source[W]) Lenses() int {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return len(s.shared.lenses) + len(s.shared.views)
}
