package protocol

// dropUnwanted forgets the records of names that the client no longer wants.
func (u *subscription) dropUnwanted() {
	if !u.wildcard && (!u.typ.FullState || u.idle()) { // of subscribed names, the next answer gives the full state
		u.bringLess()
	}
	if len(u.quit) == 0 {
		return
	}
	quit := u.takeQuit()
	for i := range u.refusals { // the client may have held these names because of a name that it has dropped
		quit = append(quit, u.refusals[i].lapsed...)
	}
	if u.idle() {
		quit = u.remembered()
	}
	var given []string
	for _, name := range quit {
		u.Note(name)
		if u.Entry(name) == nil {
			u.dropLeftover(name, unmatched)
		}
		if u.covers(name) {
			for i := range u.refusals {
				if r := &u.refusals[i]; r.has(name) && u.phantom(item{Name: name, Was: r.Before(name), Is: r.Carries(name)}) {
					r.take(name, true)
				}
			}
			continue
		}
		u.fed(name)
		given = append(given, name)
		u.dropLeftover(name, cannotRemove)
		if !u.isLeftover(name, unmatched) {
			u.leaveNot(name)
		}
		if u.stillHeld(name) {
			continue
		}
		for i := range u.refusals {
			u.refusals[i].take(name, true)
		}
	}
	u.unbring(given)
	u.dropEmpty()
	for _, name := range quit {
		u.trace(u.Entry(name))
	}
}
