package server

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// A scripted source has one watch, which returns one step after the other. The last step remains.
type scripted struct {
	steps []viewStep
	bell  chan struct{}
}

// A viewStep is a result of Next.
type viewStep struct {
	view xds.View
	err  error
}

func newScripted(steps ...viewStep) *scripted {
	return &scripted{steps: steps, bell: make(chan struct{}, 1)}
}

func (s *scripted) Watch(context.Context, *xds.Node) (*scripted, error) { return s, nil }
func (s *scripted) C() <-chan struct{}                                  { return s.bell }
func (s *scripted) Interested(*xds.Type, bool, []string, []string)      {}
func (s *scripted) Close()                                              {}

func (s *scripted) poll(o ...Option) func(xds.Request) (*Poll, error) {
	server := New(s, o...)
	return func(r xds.Request) (*Poll, error) { return server.Poll(context.Background(), xds.Cluster, r, Caller{}) }
}

func (s *scripted) Next() (xds.View, []xds.Names, error) {
	now := s.steps[0]
	if len(s.steps) > 1 {
		s.steps = s.steps[1:]
	}
	return now.view, nil, now.err
}

// halfKnown is a view that does not know yet if a name exists.
type halfKnown struct {
	xds.Tables
	name string
}

func (h halfKnown) Undecided(_ *xds.Type, name string) bool { return name == h.name }

func clusters(names ...string) xds.Tables {
	var rs []*xds.Resource
	for _, n := range names {
		rs = append(rs, res(n, "1"))
	}
	return xds.Tables{xds.Cluster.URL: with(new(xds.Table), of(xds.Cluster, rs...))}
}

// A poll ends with the error of the watch at each of its steps.
func TestPollEndsWithItsWatch(t *testing.T) {
	good, bad, unknown := viewStep{view: clusters("a")}, viewStep{err: errors.New("hidden")}, viewStep{}
	denied := func(what string, book *logbook, err error) {
		t.Helper()
		if status.Code(err) != codes.PermissionDenied || strings.Count(book.String(), "error=hidden") != 1 {
			t.Errorf("%s: %v, the log has %s", what, err, book)
		}
	}
	within(t, "at its start", func(t *testing.T) {
		for _, steps := range [][]viewStep{{bad}, {good, bad}} {
			var book logbook
			poll := newScripted(steps...).poll(book.at(0))
			_, err := poll(xds.Request{})
			denied("at its start", &book, err)
		}
	})
	within(t, "while it is held", func(t *testing.T) {
		var book logbook
		src := newScripted(good, good, unknown, bad)
		poll := src.poll(book.at(0))
		p, err := poll(xds.Request{Version: sum(good.view.Table(xds.Cluster))})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close(nil)
		src.bell <- struct{}{}
		if r, err := p.Wait(t.Context(), time.Second); r != nil || err != nil {
			t.Errorf("with unknown content: %v %v", r, err)
		}
		src.bell <- struct{}{}
		_, err = p.Wait(t.Context(), time.Second)
		denied("while it is held", &book, err)
	})
	within(t, "at its end", func(t *testing.T) {
		for _, last := range []viewStep{bad, unknown} {
			var book logbook
			poll := newScripted(good, good, last).poll(book.at(0))
			p, err := poll(xds.Request{Version: sum(good.view.Table(xds.Cluster))})
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Unchanged()
			p.Close(err)
			switch {
			case r != nil:
				t.Errorf("an answer: %v", r)
			case last.err != nil:
				denied("at its end", &book, err)
			case !errors.Is(err, errNotKnown):
				t.Error(err)
			}
		}
	})
}

// A poll is held while the source does not know if one of its names exists. A name that does not exist needs no wait, and
// a client that has the content does not get it again.
func TestPollOfUndecidedNames(t *testing.T) {
	within(t, "undecided", func(t *testing.T) {
		half, whole := halfKnown{clusters("a"), "b"}, clusters("a", "b")
		version := sum(whole.Table(xds.Cluster))
		for _, tt := range []struct {
			req   xds.Request
			ready bool
		}{
			{xds.Request{Names: []string{"a"}}, true},
			{xds.Request{Names: []string{"a", "c"}}, true},
			{xds.Request{Names: []string{"a", "b"}}, false},
			{xds.Request{Names: []string{"*", "b"}, Version: version}, false},
		} {
			poll := newScripted(viewStep{view: half}).poll()
			p, err := poll(tt.req)
			if err != nil || p.Ready() != tt.ready {
				t.Errorf("%v: %v, ready: %v", tt.req.Names, err, !tt.ready)
			}
			p.Close(nil)
		}
	})
}

// An observer gets a poll as a stream with one request and one response.
func TestEventsOfPolls(t *testing.T) {
	within(t, "events", func(t *testing.T) {
		w := newPollWorld(t)
		o := &streams{}
		w.set(xds.Cluster, res("a", "1"), res("b", "1"))
		w.visitor(xds.Cluster).gets(0, "a", "b")
		var kinds []protocol.EventKind
		for _, e := range w.seen.events {
			kinds = append(kinds, e.Kind)
			if e.Kind == protocol.Sent && (e.Count != 2 || e.Version == "" || e.Nonce != e.Version || e.Type != xds.Cluster) {
				t.Errorf("the response: %+v", e)
			}
		}
		if want := []protocol.EventKind{protocol.Opened, protocol.Subscribed, protocol.Sent}; !reflect.DeepEqual(kinds, want) {
			t.Errorf("got %v, want %v", kinds, want)
		}
		s := New(w.source, WithObserver(o))
		for id := range uint64(2) {
			p, err := s.Poll(t.Context(), xds.Cluster, xds.Request{}, Caller{})
			if err != nil || !p.info.Poll || p.info.ID != id+1 {
				t.Errorf("poll %d: %+v %v", id+1, p.info, err)
			}
			p.Close(nil)
		}
		if _, err := s.Poll(t.Context(), &xds.Type{}, xds.Request{}, Caller{}); status.Code(err) != codes.InvalidArgument {
			t.Error("a poll without a type:", err)
		}
	})
}

// SAFE-9: a poll may use its limits exactly: the size of its node, and of its names. All fields of a node count.
func TestLimitsOfOnePoll(t *testing.T) {
	node := &xds.Node{ID: "1", Cluster: "22", UserAgentName: "333", UserAgentVersion: "4444", Region: "55555", Zone: "666666", SubZone: "7777777", ClientFeatures: []string{"f"}, Metadata: make([]byte, 9)}
	if got, want := size(node), 1+2+3+4+5+6+7+65+9; got != want {
		t.Errorf("a node of %d bytes, want %d", got, want)
	}
	names := []string{"a", "bb"}
	for _, less := range []int{0, 1} {
		for what, limits := range map[string]Limits{
			"node":  {Node: size(node) - less},
			"names": {Held: weight(names) - less},
		} {
			poll := newScripted(viewStep{view: clusters("a")}).poll(WithLimits(limits))
			p, err := poll(xds.Request{Node: node, Names: names})
			if (err != nil) != (less > 0) {
				t.Errorf("%s: %d bytes less: %v", what, less, err)
			}
			if err == nil {
				p.Close(nil)
			}
		}
	}
	for all, want := range map[int]int{0: 0, 1: 1, 4: 1, 8: 2, 9: 3} {
		if got := newPolls(1, all).memory.max; got != want {
			t.Errorf("of %d bytes, polls may have %d, want %d", all, got, want)
		}
	}
}

// A refused answer is what a transport sends again if it must, without a look at other servers. A poll without an answer
// leaves the last answer known.
func TestPollAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &head{}
		w := newPollWorld(t, WithCatchUp(h.newest))
		w.set(xds.Cluster, res("a", "1"))
		v := w.visitor(xds.Cluster)
		v.gets(0, "a")
		w.set(xds.Cluster, res("a", "2"))
		v.refuses = true
		refused := v.gets(0, "a")
		h.wants(t, true)
		req := v.request()
		req.Nonce, req.Error = refused.Nonce, &xds.Status{Code: 3, Message: "no"}
		p, err := w.Poll(t.Context(), v.typ, req, v.caller())
		if err != nil || p.Ready() {
			t.Fatal(p, err)
		}
		p.Close(errors.New("the client has gone"))
		if _, known := w.polls.answers.get(p.poller); !known {
			t.Error("the refusal is forgotten")
		}
		if p, err = w.Poll(t.Context(), v.typ, req, v.caller()); err != nil {
			t.Fatal(err)
		}
		if r, err := p.Unchanged(); err != nil || r.Version != refused.Version {
			t.Error(r, err)
		}
		p.Close(nil)
		h.wants(t)
	})
}
