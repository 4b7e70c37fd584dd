package protocoltest

import (
	"errors"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// The judge of the client knows what is told twice.
func TestJudgeOfClient(t *testing.T) {
	t.Run("CLI-3 CLI-12 what was refused may be told to be gone, though its name found another meanwhile", func(t *testing.T) {
		w := newServed(ClientConfig{Variant: xds.Delta, Server: "honest"}, nil)
		a, other := w.judge.of(xds.Secret), &xds.Resource{Stamp: &xds.Stamp{Name: "s"}, Aliases: []string{"t"}, Body: []byte("1")}
		w.judge.asks(xds.Secret, "t")
		try := func(e protocol.ClientEvent) (failed bool) {
			defer func() { failed = recover() != nil }()
			e.Type, e.Asked = xds.Secret, []string{"t"}
			w.judge.event(a, e, nil)
			return false
		}
		for _, e := range []struct {
			protocol.ClientEvent
			twice bool
		}{
			{ClientEvent: protocol.ClientEvent{Kind: protocol.Refused, Name: "t", Err: errors.New("it is bad")}},
			{ClientEvent: protocol.ClientEvent{Kind: protocol.Updated, Name: "s", Resource: other}},
			{ClientEvent: protocol.ClientEvent{Kind: protocol.Updated, Name: "s", Resource: other}, twice: true},
			{ClientEvent: protocol.ClientEvent{Kind: protocol.Removed, Name: "s", Resource: other}},
			{ClientEvent: protocol.ClientEvent{Kind: protocol.Absent, Name: "t"}},
			{ClientEvent: protocol.ClientEvent{Kind: protocol.Absent, Name: "t"}, twice: true},
		} {
			if try(e.ClientEvent) != e.twice {
				t.Errorf("%s %s: want that it is told twice: %v", e.Kind, e.Name, e.twice)
			}
		}
	})
}
