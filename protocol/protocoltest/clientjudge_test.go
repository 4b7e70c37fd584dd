package protocoltest

import (
	"errors"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// TestJudgeOfClient checks that the judge finds events that come twice, and events that are missing.
func TestJudgeOfClient(t *testing.T) {
	failed := func(f func()) (failed bool) {
		defer func() { failed = recover() != nil }()
		f()
		return false
	}
	begin := func(asked ...string) (*clientJudge, *clientAccount) {
		j := newServed(ClientConfig{Variant: xds.Delta, Server: "honest"}, nil).judge
		for _, s := range asked {
			j.subscribe(xds.Secret, s)
			j.of(xds.Secret).requested[s] = true
		}
		return j, j.of(xds.Secret)
	}
	other, wrong := &xds.Resource{Stamp: &xds.Stamp{Name: "s"}, Aliases: []string{"t"}, Body: []byte("1")}, errors.New("bad content")

	type told struct {
		protocol.ClientEvent
		wrong bool
	}
	to := func(asked []string, e protocol.ClientEvent, wrong bool) told {
		e.Type, e.Asked = xds.Secret, asked
		return told{e, wrong}
	}
	t1, all := []string{"t"}, []string{"*", "t"}
	for name, events := range map[string][]told{
		"CLI-12 a refused resource stays refused when its name matches another, until it is removed": {
			to(t1, protocol.ClientEvent{Kind: protocol.Refused, Name: "t", Err: wrong}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Updated, Name: "s", Resource: other}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Updated, Name: "s", Resource: other}, true),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "t", Resource: other}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "t", Resource: other}, true),
			to(t1, protocol.ClientEvent{Kind: protocol.Removed, Name: "s", Resource: other}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "t"}, true),
		},
		"CLI-12 an absent event carries the resource that the name matches": {
			to(t1, protocol.ClientEvent{Kind: protocol.Refused, Name: "t", Err: wrong}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Updated, Name: "s", Resource: other}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "t"}, true),
		},
		"CLI-12 a refusal is reported once to each name": {
			to(t1, protocol.ClientEvent{Kind: protocol.Refused, Name: "s", Err: wrong}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Refused, Name: "s", Err: wrong}, true),
			to([]string{"*"}, protocol.ClientEvent{Kind: protocol.Refused, Name: "s", Err: wrong}, false),
			to(all, protocol.ClientEvent{Kind: protocol.Refused, Name: "s", Err: wrong}, true),
			to(all, protocol.ClientEvent{Kind: protocol.Refused, Name: "s", Err: errors.New("worse content")}, false),
			to(all, protocol.ClientEvent{Kind: protocol.Absent, Name: "s"}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "s"}, true),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "t"}, true),
		},
		"CLI-12 a name is not absent while it matches a refused resource": {
			to(t1, protocol.ClientEvent{Kind: protocol.Refused, Name: "s", Err: wrong}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Absent, Name: "t"}, true),
		},
		"CLI-12 an error of a name ends when it matches a resource": {
			to(t1, protocol.ClientEvent{Kind: protocol.Errored, Name: "t", Err: wrong}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Updated, Name: "s", Resource: other}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Errored, Name: "t", Err: wrong}, false),
			to(t1, protocol.ClientEvent{Kind: protocol.Errored, Name: "t", Err: wrong}, true),
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, a := begin("t", "*")
			for i, e := range events {
				if is := failed(func() { j.checkEvent(a, e.ClientEvent) }); is != e.wrong {
					t.Errorf("event %d, %s %s: the judge fails: %v, want %v", i, e.Kind, e.Name, is, e.wrong)
				}
			}
		})
	}

	t.Run("CLI-10 CLI-12 an adopted resource is reported although the name matches another first", func(t *testing.T) {
		j, a := begin("t")
		own := &xds.Resource{Stamp: &xds.Stamp{Name: "t"}, Body: []byte("1")}
		j.adopts(xds.Secret, false, own)
		for _, r := range []*xds.Resource{other, own} {
			j.checkEvent(a, protocol.ClientEvent{Kind: protocol.Updated, Type: xds.Secret, Name: r.Name, Resource: r, Asked: t1})
		}
		if !failed(func() {
			j.checkEvent(a, protocol.ClientEvent{Kind: protocol.Updated, Type: xds.Secret, Name: "t", Resource: own, Asked: t1})
		}) {
			t.Error("a second event is accepted")
		}
	})

	bad := &xds.Resource{Stamp: &xds.Stamp{Name: "s"}, Type: xds.Secret, Aliases: []string{"t"}, Body: []byte("?")}
	refused := protocol.ClientEvent{Kind: protocol.Refused, Type: xds.Secret, Name: "s", Err: wrong, Asked: t1}
	gone := protocol.ClientEvent{Kind: protocol.Absent, Type: xds.Secret, Name: "s", Asked: t1}
	for _, c := range []struct {
		name  string
		told  []protocol.ClientEvent
		then  *xds.Changes
		again []protocol.ClientEvent
		wrong bool
	}{
		{name: "CLI-12 the subscriber of an alias must get the refusal", wrong: true},
		{name: "CLI-12 the subscriber of an alias gets the refusal", told: []protocol.ClientEvent{refused}},
		{name: "CLI-12 the subscriber of an alias must get the removal of the refused resource", told: []protocol.ClientEvent{refused}, then: &xds.Changes{Removed: []string{"s"}}, wrong: true},
		{name: "CLI-12 the subscriber of an alias gets the removal of the refused resource", told: []protocol.ClientEvent{refused}, then: &xds.Changes{Removed: []string{"s"}}, again: []protocol.ClientEvent{gone}},
		{name: "CLI-12 the subscriber of an alias must get the removal of the alias", told: []protocol.ClientEvent{refused}, then: &xds.Changes{Removed: []string{"t"}}, wrong: true},
		{name: "CLI-12 the subscriber of an alias gets the removal of the alias", told: []protocol.ClientEvent{refused}, then: &xds.Changes{Removed: []string{"t"}}, again: []protocol.ClientEvent{gone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, a := begin("t")
			is := failed(func() {
				hear := func(c *xds.Changes, events []protocol.ClientEvent) {
					j.apply(a, &xds.Response{Type: xds.Secret, Changes: c})
					for _, e := range events {
						j.checkEvent(a, e)
					}
					j.checkKnown(a, "t", a.subscribers["t"])
				}
				hear(&xds.Changes{Upserts: []*xds.Resource{bad}}, c.told)
				if c.then != nil {
					hear(c.then, c.again)
				}
			})
			if is != c.wrong {
				t.Errorf("the judge fails: %v, want %v", is, c.wrong)
			}
		})
	}

	t.Run("CLI-6 CLI-12 the removal of a name that the server does not know as subscribed removes nothing", func(t *testing.T) {
		for _, told := range []bool{false, true} {
			j, a := begin("t")
			a.ended = map[string]bool{}
			if j.hold(a, other); !told {
				delete(a.requested, "t")
			}
			if j.remove(a, "t"); (a.held["s"] == nil) != told {
				t.Errorf("known to the server %v: the client holds %v", told, names(a.held))
			}
		}
	})
}
