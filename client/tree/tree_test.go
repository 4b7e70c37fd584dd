package tree

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var short = map[string]*xds.Type{"LDS": xds.Listener, "RDS": xds.Route, "CDS": xds.Cluster, "EDS": xds.Endpoint, "SDS": xds.Secret}

// A fake is a client with resources that the test sets. Names are like "CDS a".
type fake struct {
	t    *testing.T
	done chan struct{}

	mu        sync.Mutex
	last      map[string]client.Event
	followers []*fakeFollower
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, done: make(chan struct{}), last: map[string]client.Event{}}
}

func (f *fake) follow() follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &fakeFollower{fake: f, names: map[string]bool{}, bell: make(chan struct{}, 1)}
	f.followers = append(f.followers, w)
	return w
}

type fakeFollower struct {
	*fake
	bell  chan struct{}
	names map[string]bool
	news  []client.TypeEvents
}

func (w *fakeFollower) C() <-chan struct{}    { return w.bell }
func (w *fakeFollower) Done() <-chan struct{} { return w.done }

func (w *fakeFollower) Add(typ *xds.Type, names ...string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if strings.Contains(name, "forbidden") {
			return errors.New("no such authority")
		}
	}
	for _, name := range names {
		name = typ.Short + " " + name
		if e, is := w.last[name]; is && !w.names[name] {
			w.put(name, e)
		}
		w.names[name] = true
	}
	return nil
}

func (w *fakeFollower) Remove(typ *xds.Type, names ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		delete(w.names, typ.Short+" "+name)
	}
}

func (w *fakeFollower) put(name string, e client.Event) {
	w.news = append(w.news, client.TypeEvents{Type: ref(name).Type, Events: []client.Event{e}})
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

func (w *fakeFollower) Take() (all []client.TypeEvents) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, w.news = w.news, nil
	return all
}

func (w *fakeFollower) Close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followers = slices.DeleteFunc(w.followers, func(o *fakeFollower) bool { return o == w })
}

func ref(s string) xds.Ref {
	typ, name, _ := strings.Cut(s, " ")
	return xds.Ref{Type: short[typ], Name: name}
}

// say sends an event of a name.
func (f *fake) say(name string, e client.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.Name = ref(name).Name
	f.last[name] = e
	for _, w := range f.followers {
		if w.names[name] {
			w.put(name, e)
		}
	}
}

// put sets a resource with a body and references.
func (f *fake) put(name, body string, refs ...string) {
	f.say(name, client.Event{Kind: client.Updated, Resource: made(name, body, refs...)})
}

func made(name, body string, refs ...string) *xds.Resource {
	r := xds.NewResource(ref(name).Type, ref(name).Name, []byte(body))
	list := []xds.Ref{}
	for _, s := range refs {
		list = append(list, ref(s))
	}
	r.Refs = list
	return r
}

// watched returns the watched names.
func (f *fake) watched() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]bool{}
	for _, w := range f.followers {
		maps.Copy(all, w.names)
	}
	return strings.Join(slices.Sorted(maps.Keys(all)), ", ")
}

// A story is a watch whose states are formatted as text.
type story struct {
	*fake
	mu     sync.Mutex
	states []State
	end    error
	ended  bool
}

func begin(t *testing.T, f *fake, o Options) *story {
	s := &story{fake: f}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for state, err := range watch(ctx, f.follow, "l", o) {
			s.mu.Lock()
			if err != nil {
				s.end = err
			} else {
				s.states = append(s.states, state)
			}
			s.mu.Unlock()
		}
		s.mu.Lock()
		s.ended = true
		s.mu.Unlock()
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func describe(s *State) string {
	text := "nothing"
	if s.Tree != nil {
		var members []string
		for _, m := range s.Tree.Members {
			one := m.Type.Short + " " + m.Name
			if m.Resource != nil {
				one += "=" + string(m.Resource.Body)
			}
			if m.Err != nil {
				one += " (" + m.Err.Error() + ")"
			}
			if m.Unknown {
				one += " and who knows what"
			}
			members = append(members, one)
		}
		text = strings.Join(members, ", ")
	}
	if r := s.Reason(); r != "" {
		text += " | " + r
	}
	return text
}

// want waits until all goroutines are idle and expects this last state, or no new state.
func (s *story) want(text string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := "no news"
	if n := len(s.states); n > 0 {
		got = describe(&s.states[n-1])
	}
	if s.states = nil; got != text {
		s.t.Errorf("got  %s\nwant %s", got, text)
	}
}

func world(t *testing.T, f func(s *story)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(begin(t, newFake(t), Options{})) })
}

// "As gRFC A74's dependency manager": no state has a tree before all members have arrived.
func TestNoTreeBeforeAllMembersArrive_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.want("no news")
		s.put("LDS l", "1", "RDS r")
		s.want(`nothing | RDS "r" (referenced by LDS "l") has not arrived`)
		s.put("RDS r", "1", "CDS a", "CDS b") // weighted clusters, several routes
		s.want(`nothing | CDS "a" (referenced by RDS "r") has not arrived, CDS "b" (referenced by RDS "r") has not arrived`)
		s.put("CDS b", "1", "EDS b")
		s.put("EDS b", "1")
		s.want(`nothing | CDS "a" (referenced by RDS "r") has not arrived`)
		s.put("CDS a", "1")
		s.want("LDS l=1, RDS r=1, CDS a=1, CDS b=1, EDS b=1")
		s.put("EDS b", "2")
		s.want("LDS l=1, RDS r=1, CDS a=1, CDS b=1, EDS b=2")
		s.put("EDS b", "2")
		s.want("no news")
	})
}

// A change of several resources makes one new tree. The old tree's members stay watched until then.
func TestChangeOfSeveralResourcesIsOneTree_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.put("EDS a", "1")
		s.put("CDS a", "1", "EDS a")
		s.put("RDS r", "1", "CDS a")
		s.put("LDS l", "1", "RDS r")
		s.want("LDS l=1, RDS r=1, CDS a=1, EDS a=1")
		s.put("RDS r", "2", "CDS b")
		s.want(`LDS l=1, RDS r=1, CDS a=1, EDS a=1 | CDS "b" (referenced by RDS "r") has not arrived`)
		if got := s.watched(); got != "CDS a, CDS b, EDS a, LDS l, RDS r" {
			t.Error(got)
		}
		s.put("EDS a", "2") // the earlier tree does not change
		s.want("no news")
		s.put("CDS b", "1", "EDS b")
		s.want(`LDS l=1, RDS r=1, CDS a=1, EDS a=1 | EDS "b" (referenced by CDS "b") has not arrived`)
		s.put("EDS b", "1")
		s.want("LDS l=1, RDS r=2, CDS b=1, EDS b=1")
		if got := s.watched(); got != "CDS b, EDS b, LDS l, RDS r" {
			t.Error(got)
		}

		// The listener refers to it again before the new tree is complete.
		s.put("RDS r", "3", "CDS c", "CDS b")
		s.want(`LDS l=1, RDS r=2, CDS b=1, EDS b=1 | CDS "c" (referenced by RDS "r") has not arrived`)
		s.put("RDS r", "2", "CDS b")
		s.want("LDS l=1, RDS r=2, CDS b=1, EDS b=1")
		if got := s.watched(); got != "CDS b, EDS b, LDS l, RDS r" {
			t.Error(got)
		}
	})
}

// A waiting name is reported with the member that refers to it now.
func TestReasonNamesPresentReferrer_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.put("LDS l", "1", "RDS r", "CDS x")
		s.put("CDS x", "1", "CDS a")
		s.put("RDS r", "1", "CDS a")
		s.want(`nothing | CDS "a" (referenced by RDS "r") has not arrived`)
		s.put("RDS r", "2")
		s.want(`nothing | CDS "a" (referenced by CDS "x") has not arrived`)
	})
}

// Late events of names that are not watched any more are ignored.
func TestEventsOfUnwatchedNamesAreIgnored_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.put("LDS l", "1", "CDS a")
		s.put("CDS a", "1")
		s.want("LDS l=1, CDS a=1")
		s.put("LDS l", "2")
		s.want("LDS l=2")
		s.fake.mu.Lock()
		s.followers[0].put("CDS a", client.Event{Kind: client.Updated, Name: "a", Resource: made("CDS a", "2")})
		s.fake.mu.Unlock()
		s.want("no news")
		s.put("CDS a", "3")
		s.put("LDS l", "3", "CDS a")
		s.want("LDS l=3, CDS a=3")
	})
}

// An error is part of the tree: an error of a cluster does not affect the others, and usable resources
// stay.
func TestErrors_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.say("LDS l", client.Event{Kind: client.Absent})
		s.want("LDS l (does not exist)")
		s.put("LDS l", "1", "CDS a", "CDS b", "CDS forbidden")
		s.put("CDS a", "1")
		s.say("CDS b", client.Event{Kind: client.Unavailable, Err: errors.New("nobody there")})
		s.want("LDS l=1, CDS a=1, CDS b (nobody there), CDS forbidden (no such authority)")
		s.put("CDS b", "1", "EDS b")
		s.want(`LDS l=1, CDS a=1, CDS b (nobody there), CDS forbidden (no such authority) | EDS "b" (referenced by CDS "b") has not arrived`)
		s.say("EDS b", client.Event{Kind: client.Refused, Err: errors.New("bad")})
		s.want("LDS l=1, CDS a=1, CDS b=1, CDS forbidden (no such authority), EDS b (bad)")
		s.say("CDS a", client.Event{Kind: client.Refused, Resource: made("CDS a", "1"), Err: errors.New("bad too")})
		s.want("LDS l=1, CDS a=1 (bad too), CDS b=1, CDS forbidden (no such authority), EDS b (bad)")
		s.say("CDS b", client.Event{Kind: client.Stale, Resource: made("CDS b", "1", "EDS b"), Err: errors.New("nobody there")})
		s.want("LDS l=1, CDS a=1 (bad too), CDS b=1 (nobody there), CDS forbidden (no such authority), EDS b (bad)")
		s.say("CDS b", client.Event{Kind: client.Removed})
		s.want("LDS l=1, CDS a=1 (bad too), CDS b (does not exist), CDS forbidden (no such authority)")
		s.say("LDS l", client.Event{Kind: client.Removed})
		s.want("LDS l (does not exist)")
		if got := s.watched(); got != "LDS l" {
			t.Error(got)
		}
	})
}

// Aggregate clusters in a cycle, with a shared cluster.
func TestAggregateClusters_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.put("LDS l", "1", "CDS a")
		s.put("CDS a", "1", "CDS b", "CDS c")
		s.put("CDS b", "1", "CDS c", "CDS a")
		s.want(`nothing | CDS "c" (referenced by CDS "a") has not arrived`)
		s.put("CDS c", "1", "EDS c")
		s.put("EDS c", "1")
		s.want("LDS l=1, CDS a=1, CDS b=1, CDS c=1, EDS c=1")
	})
}

// Unknown references are reported: a resource with unknown references, and a reference to any resource
// of a type.
func TestUnknownReferences_CLI9(t *testing.T) {
	world(t, func(s *story) {
		s.put("LDS l", "1", "CDS a", "CDS *")
		s.put("CDS a", "1")
		s.want("LDS l=1, CDS a=1")
		r := made("CDS a", "2")
		r.Refs, r.Type = nil, xds.TypeOf("type.googleapis.com/acme.NotLinked")
		s.say("CDS a", client.Event{Kind: client.Updated, Resource: r})
		s.want("LDS l=1, CDS a=2 and who knows what")
		r = made("CDS a", "\xff\xff")
		r.Refs = nil
		s.say("CDS a", client.Event{Kind: client.Updated, Resource: r})
		s.want("LDS l=1, CDS a=\xff\xff and who knows what")
	})
	m := &Member{Ref: ref("CDS a"), Refs: []xds.Ref{}, Resource: made("CDS a", "1")}
	if tree := (&Tree{Members: []*Member{{Ref: ref("CDS a"), Err: ErrAbsent}}}); tree.Complete() {
		t.Error("a tree without a root is complete")
	}
	for _, tt := range []struct {
		of   Member
		want bool
	}{{Member{Unknown: true}, false}, {Member{Refs: []xds.Ref{ref("EDS *")}}, false}, {Member{Refs: []xds.Ref{ref("EDS x")}, Err: ErrAbsent}, true}} {
		if tree := (&Tree{Members: []*Member{m, &tt.of}}); tree.Complete() != tt.want {
			t.Errorf("%+v", tt.of)
		}
	}
}

// References to types outside Options.Types are reported, but not watched.
func TestTypes_CLI9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t, newFake(t), Options{Types: []*xds.Type{xds.Cluster}})
		s.put("LDS l", "1", "CDS a", "SDS s")
		s.put("CDS a", "1", "EDS a")
		s.want("LDS l=1, CDS a=1")
		if got := s.watched(); got != "CDS a, LDS l" {
			t.Error(got)
		}
	})
}

// A watch ends with its context, its loop, the client, or a root that cannot be watched.
func TestWatchEnds_CLI9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.put("LDS l", "1", "CDS a")
		s := begin(t, f, Options{})
		synctest.Wait()
		close(f.done)
		synctest.Wait()
		if !s.ended || !errors.Is(s.end, client.ErrClosed) {
			t.Error(s.ended, s.end)
		}

		f.done = make(chan struct{})
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		n := 0
		for _, err := range watch(ctx, f.follow, "l", Options{}) {
			if n++; n == 1 {
				cancel(why)
			} else if err != why { //nolint:errorlint // the cause of the context
				t.Error(err)
			}
		}
		if n != 2 || f.watched() != "" {
			t.Error(n, f.watched())
		}
		for range watch(t.Context(), f.follow, "l", Options{}) {
			break
		}
		if f.watched() != "" {
			t.Error(f.watched())
		}
		for _, err := range watch(t.Context(), f.follow, "forbidden", Options{}) {
			if err == nil || err.Error() != "no such authority" {
				t.Error(err)
			}
		}
	})
}

// A slow watch gets the last state and does not delay the client.
func TestSlowWatchGetsLastState_CLI9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.put("LDS l", "0", "CDS a")
		f.put("CDS a", "0")
		var got []string
		for state, err := range watch(t.Context(), f.follow, "l", Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, describe(&state)); state.Tree == nil {
				continue
			}
			if string(state.Tree.Root().Resource.Body) == "50" {
				break
			}
			for i := range 50 {
				f.put("LDS l", fmt.Sprint(i+1), "CDS a")
				synctest.Wait()
			}
		}
		want := []string{`nothing | CDS "a" (referenced by LDS "l") has not arrived`, "LDS l=0, CDS a=0", "LDS l=50, CDS a=0"}
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	})
}

func TestMember(t *testing.T) {
	m := &Member{Ref: ref("CDS a")}
	tree := &Tree{Members: []*Member{m}, index: byRef[int32]{m.Type.URL: {m.Name: 0}}}
	if tree.Member(xds.Cluster, "a") != m || tree.Member(xds.Endpoint, "a") != nil || tree.Member(nil, "a") != nil || tree.Root() != m {
		t.Error(tree)
	}
}

// Long reasons are cut.
func TestReason(t *testing.T) {
	s := State{Waiting: []Waiting{{Ref: ref("LDS l")}, {Ref: ref("CDS a")}, {Ref: ref("CDS b")}, {Ref: ref("CDS c")}, {Ref: ref("CDS d")}}}
	if got, want := s.Reason(), `LDS "l" has not arrived, CDS "a" has not arrived, CDS "b" has not arrived, and 2 more`; got != want {
		t.Error(got)
	}
}

// names expects the members of a complete tree.
func (s *story) names(want string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.states[len(s.states)-1]
	var got []string
	if last.Tree != nil {
		for _, m := range last.Tree.Members {
			got = append(got, m.Type.Short+" "+m.Name)
		}
	}
	if text := strings.Join(got, ", "); text != want || len(last.Waiting) > 0 || !last.Tree.Complete() {
		s.t.Errorf("got  %s | %s\nwant %s", text, last.Reason(), want)
	}
}
