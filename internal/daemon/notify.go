package daemon

// notify fills a channel of one slot.
func notify(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
