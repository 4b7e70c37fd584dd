package server

import (
	"errors"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

func TestObservers(t *testing.T) {
	var a, b witness
	var quick textless
	said := protocol.Event{Kind: protocol.Nacked, Error: &xds.Status{Message: "no"}}
	st, why := &Stream{}, errors.New("gone")
	o := Observers(&a, &quick, &b)
	o.Opened(st)
	o.Event(st, said)
	o.Closed(st, why)
	for i, w := range []*witness{&a, &b, &quick.witness} {
		if !slices.Equal(w.opened, []*Stream{st}) || !slices.Equal(w.nacks, []string{"no"}) || !slices.Equal(w.closed, []*Stream{st}) || !errors.Is(w.why, why) {
			t.Errorf("observer %d got %+v", i, w)
		}
	}
	for want, o := range map[bool]Observer{true: Observers(&quick, &quick), false: o} {
		if _, is := o.(CodesOnly); is != want {
			t.Errorf("CodesOnly: %v, want %v", is, want)
		}
	}
}
