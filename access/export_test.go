package access

// Lenses returns how many there are that streams look through.
func (s *Source[W]) Lenses() int {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	return len(s.shared.lenses)
}
