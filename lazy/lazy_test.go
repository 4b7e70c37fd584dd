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

func TestResolve(t *testing.T) {
	on(t, "OND-1 found when asked for, and not before", func(b *bench) {
		b.be.set("r/a", res("r/a", "A"))
		s := b.stream("")
		defer s.w.Close()
		b.sleep(time.Minute)
		b.asked()
		s.subscribe("r/a")
		s.is("r/a=?")
		b.sleep(time.Second)
		s.is("r/a=A")
		b.asked("default/r/a")
		r := b.st.Snapshot().Effective(store.DefaultGroup).Table(xds.VirtualHost).Lookup("r/a")
		if !r.OnDemand || r.Sum != res("r/a", "A").Sum {
			t.Errorf("the store has %+v", r)
		}
	})
	on(t, "an old view, from before the resource was found, does not report it as absent", func(b *bench) {
		b.be.set("r/a", res("r/a", "A"))
		s := b.stream("")
		defer s.w.Close()
		view, _ := watchtest.Next(t, s.w)
		s.subscribe("r/a")
		b.sleep(2 * time.Second)
		if !view.(xds.Undecided).Undecided(xds.VirtualHost, "r/a") {
			t.Error("the old view reports it as absent")
		}
		b.asked("default/r/a")
	})
	on(t, "OND-2 a name is reported as absent as soon as the resolver has answered", func(b *bench) {
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second - 1)
		s.is("r/a=?")
		b.sleep(1)
		s.is("r/a=absent")
	})
	on(t, "SUB-6 the wildcard and collections are not asked for, nor other types", func(b *bench) {
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("*", "r/*", "xdstp://a/t/*?k=v", "")
		s.is("*=absent =absent r/*=absent xdstp://a/t/*?k=v=absent")
		s.w.Interested(xds.Cluster, false, []string{"c"}, nil)
		view, _ := watchtest.Next(t, s.w)
		if view.(xds.Undecided).Undecided(xds.Cluster, "c") {
			t.Error("undecided of another type")
		}
		b.sleep(time.Minute)
		b.asked()
	})
	on(t, "NAME-2 one name, written in two ways", func(b *bench) {
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("xdstp://a/t/x?b=1&a=2", "xdstp://a/t/x?a=2&b=1")
		b.sleep(time.Second)
		b.asked("default/xdstp://a/t/x?a=2&b=1")
		s.unsubscribe("xdstp://a/t/x?b=1&a=2")
		if len(s.w.used) != 0 {
			t.Errorf("%d names are held", len(s.w.used))
		}
	})
	on(t, "one question at a time for each group, however many ask", func(b *bench) {
		b.be.set("r/a", res("r/a", "A"))
		var all []*stream
		for i := range 100 {
			s := b.stream([]string{"", "edge"}[i%2])
			defer s.w.Close()
			s.subscribe("r/a")
			all = append(all, s)
		}
		b.sleep(time.Second)
		for _, s := range all {
			s.is("r/a=A")
		}
		b.asked("default/r/a", "edge/r/a")
	})
	on(t, "SUB-4 a stream that sees other groups than before", func(b *bench) {
		b.be.set("r/a", res("r/a", "A"))
		s := b.stream("edge")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second)
		b.asked("edge/r/a")
		b.update(func(tx *store.Tx) {
			tx.Select(func(context.Context, *xds.Node) ([]string, error) { return []string{"far", "edge"}, nil })
		})
		b.sleep(time.Second)
		s.is("r/a=A")
		b.asked() // one of its groups has it
		b.update(func(tx *store.Tx) {
			tx.Select(func(context.Context, *xds.Node) ([]string, error) { return []string{"other"}, nil })
		})
		b.be.set("r/a", res("r/a", "anew"))
		s.is("r/a=A") // there is no news until it is resolved
		b.sleep(2 * time.Second)
		s.is("r/a=anew")
		b.asked("other/r/a")
		s.unsubscribe("r/a")
		if len(s.w.used) != 0 {
			t.Errorf("%d names are held", len(s.w.used))
		}
	})
	on(t, "many names wait for their turn", func(b *bench) {
		s := b.stream("")
		defer s.w.Close()
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			b.be.set("r/"+name, res("r/"+name, name))
			s.subscribe("r/" + name)
		}
		b.sleep(2 * time.Second)
		s.is("r/a=a r/b=b r/c=c r/d=d r/e=?")
		b.sleep(time.Second)
		s.is("r/a=a r/b=b r/c=c r/d=d r/e=e")
		if b.be.most != 2 {
			t.Errorf("%d at the same time", b.be.most)
		}
	}, WithParallel(2))
	on(t, "DELTA-11 one resource, found by several names", func(b *bench) {
		b.be.set("r/www", res("r/shop", "S", "r/www"))
		b.be.set("r/web", res("r/shop", "S", "r/web"))
		b.be.set("r/late", res("r/shop", "S", "r/late"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/www", "r/web")
		b.sleep(time.Second)
		s.is("r/web=S r/www=S")
		s.subscribe("r/late", "r/shop")
		s.is("r/late=? r/shop=S r/web=S r/www=S")
		b.sleep(time.Second)
		s.is("r/late=S r/shop=S r/web=S r/www=S")
		b.asked("default/r/late", "default/r/web", "default/r/www")
		b.has("r/shop")
	})
}

func TestAbsentTTL(t *testing.T) {
	on(t, "is remembered for a while", func(b *bench) {
		for i, after := range []time.Duration{0, 0, 20 * time.Second, 10 * time.Second} {
			b.sleep(after)
			s := b.stream("")
			s.subscribe("r/a")
			if i == 0 || i == 3 {
				s.is("r/a=?")
				b.sleep(time.Second)
				b.asked("default/r/a")
			}
			s.is("r/a=absent")
			s.w.Close()
		}
		b.sleep(30 * time.Second)
		synctest.Wait()
		b.asked()
		if b.remembers() != 0 {
			t.Errorf("%d names are remembered", b.remembers())
		}
	})
	on(t, "DELTA-7 it is looked for again while a stream is subscribed, and sent when it springs into existence", func(b *bench) {
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second)
		s.is("r/a=absent")
		b.sleep(20 * time.Second)
		b.be.set("r/a", res("r/a", "A"))
		s.is("r/a=absent")
		b.sleep(10*time.Second + time.Second)
		s.is("r/a=A")
		b.asked("default/r/a", "default/r/a")
	})
}

// Names that failed together are not all retried together: each waits between half and one and a half
// times the backoff.
func TestBackoff(t *testing.T) {
	for failed, mean := range map[int]time.Duration{0: 100 * time.Millisecond, 1: 200 * time.Millisecond, 8: 25600 * time.Millisecond, 9: 30 * time.Second, 1000: 30 * time.Second} {
		shortest, longest := time.Hour, time.Duration(0)
		for range 1000 {
			d := backoff(failed)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if shortest < mean/2 || shortest > mean*6/10 || longest < mean*14/10 || longest > mean*3/2 {
			t.Errorf("after %d failures and one more: %v to %v, want %v to %v", failed, shortest, longest, mean/2, mean*3/2)
		}
	}
}

func TestResolverErrors(t *testing.T) {
	on(t, "nothing is decided, and it is tried again", func(b *bench) {
		b.be.takes = 0
		b.be.set("r/a", res("r/a", "A"))
		b.be.fail(errDown)
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second / 2)
		s.is("r/a=?")
		b.be.fail(nil)
		b.sleep(2 * time.Second)
		s.is("r/a=A")
		if n := len(b.be.asked); n < 3 || n > 6 {
			t.Errorf("%d questions", n)
		}
		if got := b.log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `name=r/a group=default error="the database is down" failures=1`) {
			t.Errorf("logged %s", got)
		}
	})
	on(t, "TYP-7 what was made for another type is not served", func(b *bench) {
		b.be.takes = 0
		foreign := xds.NewResource(xds.Cluster, "r/a", []byte("A"))
		b.be.set("r/a", foreign)
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second)
		s.is("r/a=?")
		if got := b.log.String(); !strings.Contains(got, `resource \"r/a\" has type CDS, and is set as VHDS`) {
			t.Errorf("logged %s", got)
		}
	})
	on(t, "streams do not wait for ever, but are told when it is found", func(b *bench) {
		b.be.takes = 0
		b.be.set("r/a", res("r/a", "A"))
		b.be.fail(errDown)
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(5*time.Second - 1)
		s.is("r/a=?")
		b.sleep(1)
		s.is("r/a=absent")
		b.sleep(time.Hour)
		if n := len(b.be.asked); n < 3600/45 || n > 3600/15+20 {
			t.Errorf("%d questions in an hour", n)
		}
		b.be.fail(nil)
		b.sleep(45 * time.Second)
		s.is("r/a=A")
	})
	on(t, "a resolver that hangs until its context is done", func(b *bench) {
		b.be.takes = time.Hour
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a", "r/b", "r/c")
		b.sleep(5 * time.Second)
		s.is("r/a=absent r/b=absent r/c=absent") // those that had no turn, too
		if b.be.most != 1 {
			t.Errorf("%d at the same time", b.be.most)
		}
	}, WithParallel(1))
	on(t, "what was found stays while it cannot be refreshed", func(b *bench) {
		b.be.set("r/a", res("r/a", "A"))
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a")
		b.sleep(time.Second)
		b.be.fail(errDown)
		b.Refresh(store.DefaultGroup, xds.VirtualHost, "r/a")
		b.sleep(time.Hour)
		s.is("r/a=A")
		b.be.fail(nil)
		b.be.set("r/a", res("r/a", "A2"))
		b.sleep(time.Minute)
		s.is("r/a=A2")
	})
	on(t, "a found resource stays while it cannot be refreshed and no stream is subscribed", func(b *bench) {
		b.be.set("r/a", res("r/a", "A"))
		s := b.stream("")
		s.subscribe("r/a")
		b.sleep(time.Second)
		s.w.Close()
		b.be.fail(errDown)
		b.Refresh(store.DefaultGroup, xds.VirtualHost, "r/a")
		b.sleep(time.Hour)
		b.has("r/a")
		again := b.stream("")
		defer again.w.Close()
		again.subscribe("r/a")
		again.is("r/a=A")
	})
	for name, r := range map[string]*xds.Resource{
		"another name": res("r/b", "B"),
		"no stamp":     {},
		"not sealed":   {Stamp: &xds.Stamp{Name: "r/a"}},
	} {
		on(t, "the resolver returns an invalid resource: "+name, func(b *bench) {
			b.be.set("r/a", r)
			b.be.set("r/good", res("r/good", "G"))
			s := b.stream("")
			defer s.w.Close()
			s.subscribe("r/a", "r/good")
			b.sleep(5 * time.Second)
			s.is("r/a=absent r/good=G")
			if !strings.Contains(b.log.String(), "name=r/a") {
				t.Errorf("logged %s", b.log)
			}
		})
	}
}

// Nil arguments are an error of New or change nothing.
func TestNilArguments(t *testing.T) {
	st, find, types := store.New(), new(backend).resolve, []*xds.Type{xds.VirtualHost}
	for want, f := range map[string]func() (*Source, error){
		"a nil store":    func() (*Source, error) { return New(nil, find, types) },
		"a nil resolver": func() (*Source, error) { return New(st, nil, types) },
		"no types":       func() (*Source, error) { return New(st, find, nil) },
		"a nil type":     func() (*Source, error) { return New(st, find, []*xds.Type{xds.VirtualHost, nil}) },
	} {
		if s, err := f(); s != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want %s", s, err, want)
		}
	}
	s := made(st, find, types, nil, WithLogger(nil))
	s.Refresh("default", nil, "a")
	w := watchtest.Open(t, s, nil)
	defer w.Close()
	w.Interested(nil, true, []string{"a"}, nil)
}
