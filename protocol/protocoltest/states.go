package protocoltest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// everyState: the states are checked after one batch of this many.
const everyState = 8

// states compares the reported states with the ledger and with what the client holds, after the session has
// sent everything.
func (n *lane) states() error {
	n.drains++
	if n.drains%everyState != 0 {
		return nil
	}
	all := n.session.States()
	if len(all) != len(n.ledger.accounts) {
		return fmt.Errorf("%d types have states, %d were opened", len(all), len(n.ledger.accounts))
	}
	for i, a := range n.ledger.accounts {
		if err := n.statesOf(a, all[i]); err != nil {
			return fmt.Errorf("%s: %w", a.typ, err)
		}
	}
	return nil
}

// statesOf compares the reported states of a type and of its names.
func (n *lane) statesOf(a *account, is protocol.TypeState) error {
	if err := n.ledger.typeState(a, is); err != nil {
		return fmt.Errorf("%w: %+v", err, is)
	}
	listed, err := n.listStates(a.typ)
	if err != nil {
		return err
	}
	cache := n.cache(a)
	for _, name := range n.ledger.knownNames(a) {
		st := n.session.NameState(a.typ, name)
		if err := n.checkState(a, st, listed[name], cache); err != nil {
			return fmt.Errorf("%w: %s", err, describeState(st))
		}
	}
	return nil
}

// listStates returns the reported states of all names of a type. They must be sorted, and agree with the list of refused
// names.
func (n *lane) listStates(t *xds.Type) (listed map[string]*protocol.NameState, err error) {
	listed = map[string]*protocol.NameState{}
	var names, refused []string
	for st := range n.session.NameStates(t) {
		listed[st.Name], names = &st, append(names, st.Name)
		if st.RefusedIn != "" {
			refused = append(refused, st.Name)
		}
	}
	if len(listed) < len(names) || !slices.IsSorted(names) {
		return nil, fmt.Errorf("the states have the order %q", names)
	}
	if got := n.session.Refused(t); !slices.Equal(got, refused) {
		return nil, fmt.Errorf("the method Refused lists %q, the states list %q", got, refused)
	}
	return listed, nil
}

// checkState compares the reported state of a name, and the same state in the list of all.
func (n *lane) checkState(a *account, st protocol.NameState, listed *protocol.NameState, cache map[string]*xds.Resource) error {
	if err := n.ledger.nameState(a, st); err != nil {
		return err
	}
	expires := n.clocks[[2]string{a.typ.URL, st.Name}] != (clock{}) || n.has(n.expired, a.typ, st.Name)
	if cache != nil && !expires {
		if err := cached(cache[st.Name], st, n.ledger.removes(a)); err != nil {
			return err
		}
	}
	matters := st.State != protocol.StateUnwanted && (st.View != nil || st.Told != nil || st.Why == protocol.ByName)
	switch {
	case listed == nil && matters:
		return errors.New("NameStates does not report the name")
	case listed != nil && describeState(*listed) != describeState(st):
		return fmt.Errorf("NameStates reports %s", describeState(*listed))
	}
	return nil
}

// atRest checks the reported states when traffic has ended and every client has answered. Nothing is in
// flight, due or about to be removed, except because of a refusal or an undecided view.
func (n *lane) atRest() error {
	if n.release {
		return nil // the session has released its view
	}
	all := n.session.States()
	refused := slices.ContainsFunc(all, func(is protocol.TypeState) bool { return len(is.Refused) > 0 })
	for _, is := range all {
		if is.Due && !refused {
			return fmt.Errorf("at rest: %+v", is)
		}
		for st := range n.session.NameStates(is.Type) {
			if !n.mayRest(is.Type, st, refused) {
				return fmt.Errorf("at rest: %s: %s", is.Type, describeState(st))
			}
		}
	}
	return nil
}

// mayRest reports whether a name may have a state at rest. Set refused if the client still refuses anything.
func (n *lane) mayRest(t *xds.Type, st protocol.NameState, refused bool) bool {
	switch st.State {
	case protocol.StateSynced:
		return st.Finds > 0 || st.Held != nil && st.Held.Sum == st.View.Sum
	case protocol.StateAbsent:
		return st.View == nil
	case protocol.StateRefused:
		return refused
	case protocol.StateWaiting:
		return refused && len(st.WaitsFor) > 0
	case protocol.StateSent:
		return n.sloppy // the answer was lost
	case protocol.StateUnknown: // the lost answer would have shown that the client holds nothing from an earlier stream
		return st.View == nil && n.sloppy && len(n.ledger.account(t).flights) > 0
	case protocol.StateLingering: // for a type whose removal cannot be expressed, for example
		return len(st.WaitsFor) > 0
	}
	return false
}
func (n *lane) has(set map[[2]string]bool, t *xds.Type, name string) bool {
	_, has := set[[2]string{t.URL, name}]
	return has
}

// cache returns the resources that the client holds of a type, if no response is in flight and all
// responses are answered.
func (n *lane) cache(a *account) map[string]*xds.Resource {
	if len(n.up)+len(n.down)+len(n.late) > 0 || n.mute || len(a.flights) > 0 {
		return nil
	}
	if _, plain := n.client.(*generic); !plain {
		return nil // other clients drop resources by themselves
	}
	return n.client.held(a.typ)
}

// cached compares what the client holds with the reported state. tellsGone is set if removals can be sent.
func cached(has *xds.Resource, st protocol.NameState, tellsGone bool) error {
	switch {
	case st.State == protocol.StateSynced && st.Finds == 0 && (has == nil || has.Sum != st.View.Sum):
		return fmt.Errorf("reported as synced, but the client holds %s", show(has))
	case st.State == protocol.StateAbsent && tellsGone && has != nil:
		return fmt.Errorf("reported as absent, but the client holds %s", show(has))
	}
	return nil
}

// typeState compares the reported state of a type.
func (l *ledger) typeState(a *account, is protocol.TypeState) error {
	switch {
	case !is.Type.Is(a.typ):
		return fmt.Errorf("its state is at the place of %s", a.typ)
	case is.Names != len(a.names) || is.Wildcard != (a.wildcard || a.scopes != nil):
		return fmt.Errorf("%d names are subscribed, wildcard %v", len(a.names), a.wildcard)
	}
	open := map[string]bool{}
	for _, f := range a.flights {
		open[f.nonce] = true
	}
	for _, m := range is.Unanswered {
		if !open[m.Nonce] {
			return fmt.Errorf("%s is answered", m.Nonce)
		}
	}
	idle := is.Names == 0 && !is.Wildcard // then no answer is due
	if f := a.newest; f != nil && !idle && slices.Contains(a.flights, f) && !f.excused && !slices.ContainsFunc(is.Unanswered, func(m protocol.Message) bool { return m.Nonce == f.nonce }) {
		return fmt.Errorf("%s is unanswered", f.nonce)
	}
	return nil
}

// nameState compares the reported state of a name.
func (l *ledger) nameState(a *account, st protocol.NameState) error {
	shown, told := l.shown(a, st.Name), a.lastSent[st.Name]
	switch {
	case (st.Why == protocol.ByName) != a.names[st.Name]:
		return fmt.Errorf("subscribed: %v", a.names[st.Name])
	case st.State == protocol.StateAbsent && shown != nil:
		return errors.New("the client should have it")
	case st.State == protocol.StateSynced && st.Finds == 0 && (shown == nil || !told.is(shown)):
		return fmt.Errorf("the view has %s, the client was sent %s", show(shown), show(told.res))
	}
	return nil
}

func describeState(st protocol.NameState) string {
	text := func(s *xds.Stamp) string {
		if s == nil {
			return "-"
		}
		return s.Version
	}
	return fmt.Sprintf("%s %s by %q %q, view %s told %s held %s, nonce %q refused in %q, waits for %v", st.Name, st.State, st.Why, st.By, text(st.View), text(st.Told), text(st.Held), st.Nonce, st.RefusedIn, st.WaitsFor)
}
