package daemon

// notify puts a value into a channel with one slot; if the slot is taken, it does nothing.
func notify(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
