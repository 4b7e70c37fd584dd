package lazy

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/watchtest"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestLimit(t *testing.T) {
	fill := func(b *bench, names ...string) {
		for _, name := range names {
			b.be.set(name, res(name, name))
		}
	}
	on(t, "what is idle for the longest time goes first", func(b *bench) {
		fill(b, "r/a", "r/b", "r/c", "r/d")
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a", "r/b", "r/c")
		b.sleep(time.Second)
		s.unsubscribe("r/b")
		s.unsubscribe("r/a")
		b.has("r/a r/b r/c")
		s.subscribe("r/d")
		b.sleep(time.Second)
		s.is("r/c=r/c r/d=r/d")
		b.has("r/a r/c r/d")
		b.asked("default/r/a", "default/r/b", "default/r/c", "default/r/d")
		s.subscribe("r/a") // is still remembered, and has a subscriber again
		s.is("r/a=r/a r/c=r/c r/d=r/d")
		s.subscribe("r/b")
		b.sleep(time.Minute)
		s.is("r/a=r/a r/b=absent r/c=r/c r/d=r/d")
		b.asked()
		if got := b.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "limit=3") {
			t.Errorf("logged %s", got)
		}
	}, WithLimit(3))
	on(t, "SAFE-1 names that do not exist make room for others", func(b *bench) {
		fill(b, "r/good")
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/good")
		b.sleep(time.Second)
		for i := range 100 {
			name := "r/" + strings.Repeat("x", i+1)
			s.subscribe(name)
			b.sleep(time.Second)
			s.is("r/good=r/good " + name + "=absent")
			s.unsubscribe(name)
			if b.remembers() > 5 {
				t.Fatalf("%d names", b.remembers())
			}
		}
	}, WithLimit(5))
	on(t, "SAFE-9 names that were given up make room, though they are asked about", func(b *bench) {
		fill(b, "r/good")
		s := b.stream("")
		defer s.w.Close()
		for _, name := range []string{"r/a", "r/b", "r/c"} {
			s.subscribe(name)
			s.unsubscribe(name)
			s.look(s.next(), name) // whether its client must be informed of the removal
		}
		o := b.stream("")
		defer o.w.Close()
		o.subscribe("r/good")
		b.sleep(time.Minute)
		o.is("r/good=r/good")
	}, WithLimit(3))
	on(t, "a resource goes with the last of its names", func(b *bench) {
		b.be.set("r/www", res("r/shop", "S", "r/www"))
		b.be.set("r/web", res("r/shop", "S", "r/web"))
		fill(b, "r/a", "r/b")
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/www", "r/web")
		b.sleep(time.Second)
		s.unsubscribe("r/www")
		s.subscribe("r/a")
		b.sleep(time.Second)
		b.has("r/a r/shop")
		s.unsubscribe("r/web")
		s.subscribe("r/b")
		b.sleep(time.Second)
		b.has("r/a r/b")
	}, WithLimit(2))
}

// A resource whose last name was forgotten may get a new name before Run removes it.
func TestOrphanGetsNewName(t *testing.T) {
	on(t, "a resource that is asked for again", func(b *bench) {
		b.be.set("r/www", res("r/shop", "S", "r/www"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/www")
		b.sleep(time.Second)
		s.unsubscribe("r/www")
		k := key{store.DefaultGroup, xds.VirtualHost.URL, "r/www"}
		b.mu.Lock()
		b.forget(b.entries[k])
		k.name = "r/shop"
		e := b.lookUp(k, xds.VirtualHost, s.w.View())
		b.mu.Unlock()
		if e.status != found {
			t.Error("it is looked for, though it is there")
		}
		b.ring()
		b.sleep(time.Second)
		b.has("r/shop")
	})
}

func TestResourcesOfOtherWriters(t *testing.T) {
	on(t, "what others have put into the store is not looked for, until they delete it", func(b *bench) {
		b.be.set("r/a", res("r/a", "ours"))
		b.update(func(tx *store.Tx) { tx.Set(of(xds.VirtualHost, res("r/a", "theirs", "r/alias"))...) })
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a", "r/alias")
		b.sleep(time.Minute)
		s.is("r/a=theirs r/alias=theirs")
		b.asked()
		b.update(func(tx *store.Tx) { tx.Delete(xds.VirtualHost, "r/a") })
		s.is("r/a=theirs r/alias=theirs") // there is no news yet
		b.sleep(time.Second)
		s.is("r/a=ours r/alias=absent")
		b.asked("default/r/a", "default/r/alias")
		if b.entries[key{store.DefaultGroup, xds.VirtualHost.URL, "r/a"}].users != 1 {
			t.Error("nobody is subscribed to it")
		}
	})
	on(t, "what others put in its place is theirs", func(b *bench) {
		b.be.set("r/a", res("r/a", "ours"))
		s := b.stream("")
		s.subscribe("r/a")
		b.sleep(time.Second)
		b.update(func(tx *store.Tx) { tx.Set(of(xds.VirtualHost, res("r/a", "theirs"))...) })
		b.be.set("r/a", res("r/a", "ours again"))
		b.Refresh(store.DefaultGroup, xds.VirtualHost, "r/a")
		b.sleep(time.Minute)
		s.is("r/a=theirs")
		s.w.Close()
		for _, name := range []string{"r/x", "r/y"} {
			s := b.stream("")
			s.subscribe(name)
			b.sleep(time.Second)
			s.w.Close()
		}
		b.has("r/a")
	}, WithLimit(1))
	on(t, "what others put in its place is theirs, also if it is on demand", func(b *bench) {
		b.be.set("r/a", res("r/a", "ours"))
		s := b.stream("")
		s.subscribe("r/a")
		b.sleep(time.Second)
		theirs := res("r/a", "theirs")
		theirs.OnDemand = true
		b.update(func(tx *store.Tx) { tx.Set(of(xds.VirtualHost, theirs)...) })
		s.unsubscribe("r/a")
		s.w.Close()
		for _, name := range []string{"r/x", "r/y"} { // a name without subscribers makes room
			s := b.stream("")
			s.subscribe(name)
			b.sleep(time.Second)
			s.w.Close()
		}
		b.has("r/a")
	}, WithLimit(1))
	for name, write := range map[string]func(tx *store.Tx){
		"Clear":         func(tx *store.Tx) { tx.Clear() },
		"Clear and Set": func(tx *store.Tx) { tx.Clear(); tx.Set(of(xds.VirtualHost, res("r/other", "theirs"))...) },
		"Replace":       func(tx *store.Tx) { tx.Replace(xds.VirtualHost, of(xds.VirtualHost, res("r/other", "theirs"))...) },
		"Delete":        func(tx *store.Tx) { tx.Delete(xds.VirtualHost, "r/a") },
		"Set and later Delete": func(tx *store.Tx) {
			tx.Set(of(xds.VirtualHost, res("r/a", "theirs"))...)
			tx.Delete(xds.VirtualHost, "r/a")
		},
		"Set with the name as alias": func(tx *store.Tx) { tx.Clear(); tx.Set(of(xds.VirtualHost, res("r/a2", "A", "r/a"))...) },
	} {
		on(t, "OND-5 found resources stay, with the resolver down, after "+name, func(b *bench) {
			b.be.set("r/a", res("r/a", "A"))
			s := b.stream("")
			defer s.w.Close()
			s.subscribe("r/a")
			b.sleep(time.Second)
			s.is("r/a=A")
			b.be.fail(errDown)
			b.update(write)
			s.is("r/a=A")
			b.sleep(time.Minute)
			s.is("r/a=A")
			b.asked("default/r/a")
			b.update(func(tx *store.Tx) { tx.Clear() })
			s.is("r/a=A")
		})
	}
	on(t, "the name of a found resource does not make a writer's transaction fail", func(b *bench) {
		b.be.set("r/shop r/www", res("r/shop", "found", "r/www"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/shop", "r/www")
		b.sleep(time.Second)
		s.is("r/shop=found r/www=found")
		b.update(func(tx *store.Tx) { tx.Set(of(xds.VirtualHost, res("r/www", "theirs"))...) }) // hides both names, because a name has one resource
		s.is("r/shop=absent r/www=theirs")
		b.update(func(tx *store.Tx) { tx.Clear() })
		s.is("r/shop=found r/www=found")
	})
	on(t, "a name that others use for something else", func(b *bench) {
		b.update(func(tx *store.Tx) { tx.Set(of(xds.VirtualHost, res("r/shop", "theirs"))...) })
		b.be.set("r/www", res("r/shop", "ours", "r/www"))
		b.be.set("r/web", res("r/web", "web"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/www", "r/web")
		b.sleep(10 * time.Second)
		s.is("r/web=web r/www=absent")
		b.asked("default/r/web", "default/r/www")
		b.update(func(tx *store.Tx) { tx.Clear() })
		s.is("r/web=web r/www=ours")
	})
}

func TestRefresh(t *testing.T) {
	on(t, "what has changed, and what is gone", func(b *bench) {
		b.be.set("r/a", res("r/a", "1"))
		b.be.set("r/b", res("r/b", "1"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a", "r/b")
		b.sleep(time.Second)
		b.be.set("r/a", res("r/a", "2"))
		b.be.set("r/b", nil)
		b.asked("default/r/a", "default/r/b")
		b.Refresh(store.DefaultGroup, xds.VirtualHost, "r/a", "r/b", "r/never")
		b.sleep(time.Second - 1)
		s.is("r/a=1 r/b=1")
		b.sleep(1)
		s.is("r/a=2 r/b=absent")
		b.has("r/a")
		b.asked("default/r/a", "default/r/b")
	})
	on(t, "while it is being looked for", func(b *bench) {
		b.be.set("r/a", res("r/a", "1"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second / 2)
		b.be.set("r/a", res("r/a", "2"))
		b.Refresh(store.DefaultGroup, xds.VirtualHost, "r/a")
		b.sleep(time.Second / 2)
		s.is("r/a=1")
		b.sleep(time.Second)
		s.is("r/a=2")
	})
}

// Run ends with its context. The next Run resolves the remaining names.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		be := &backend{has: map[string]*xds.Resource{"r/a": res("r/a", "A")}, takes: time.Second}
		b := &bench{T: t, be: be, st: store.New(store.WithEmptyGroups())}
		b.Source = made(b.st, be.resolve, []*xds.Type{xds.VirtualHost})
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		for _, d := range []time.Duration{time.Second / 2, 2 * time.Second} {
			s.is("r/a=?")
			ctx, cancel := context.WithTimeout(t.Context(), d)
			b.Source.Run(ctx)
			cancel()
		}
		s.is("r/a=A")
	})
}

// A stream may subscribe before the content of its group is known.
func TestUnknownGroup(t *testing.T) {
	st := store.New(store.WithGroups(func(_ context.Context, n *xds.Node) ([]string, error) { return []string{n.ID}, nil }))
	on(t, "OND-5 a name of a group that is not known yet", func(b *bench) {
		b.st = st
		b.be.set("r/a", res("r/a", "A"))
		w := watchtest.Open(b.T, b, &xds.Node{ID: "edge"})
		defer w.Close()
		w.Interested(xds.VirtualHost, false, []string{"r/a"}, nil)
		b.sleep(time.Second)
		if view, _ := watchtest.Next(b.T, w); view != nil {
			t.Errorf("the group is known: %v", view)
		}
		b.update(func(tx *store.Tx) { tx.Group("edge").Clear() })
		if view, _ := watchtest.Next(b.T, w); view == nil || view.Table(xds.VirtualHost).Lookup("r/a") == nil {
			t.Errorf("got %v", view)
		}
	}, func(s *Source) { s.store = st })
}
