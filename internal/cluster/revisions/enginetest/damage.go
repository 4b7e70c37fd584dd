package enginetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/xds"
)

func keysOf(t *testing.T, e revisions.Engine, prefix string) (keys []string) {
	t.Helper()
	for key, err := range e.List(t.Context(), prefix) {
		must(t, err)
		keys = append(keys, key)
	}
	return keys
}

// tamper replaces the value of a key, as a person could do with the tools of the engine. A nil value
// removes the key.
func tamper(ctx context.Context, t *testing.T, e revisions.Engine, key string, value []byte) {
	t.Helper()
	if is, err := e.Get(ctx, key); err == nil && value != nil {
		must(t, e.CompareAndSwap(ctx, key, is, value))
		return
	}
	must(t, e.Delete(ctx, key))
	if value != nil {
		must(t, e.PutIfAbsent(ctx, key, value))
	}
}

// A watched is a result of a watch.
type watched struct {
	*revisions.Snapshot
	error
}

// watching returns a channel with the results of a watch. end stops the watch, and waits for it.
func watching(ctx context.Context, repo *revisions.Repository) (results <-chan watched, end func()) {
	all, over := make(chan watched), make(chan struct{})
	ctx, stop := context.WithCancel(ctx)
	go func() {
		defer close(over)
		for s, err := range repo.Watch(ctx, nil) {
			select {
			case all <- watched{s, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return all, func() { stop(); <-over }
}

// mustYield fails unless the next result of a watch is revision n.
func mustYield(t *testing.T, results <-chan watched, n revisions.Number) {
	t.Helper()
	if w := <-results; w.error != nil || w.Revision.Number != n {
		t.Fatalf("the watch yields %v, want %s", w, n)
	}
}

// A damaged is a corruption of one key, and the error that it causes.
type damaged struct {
	name, key string
	to        func([]byte) []byte
	want      error
	say       string
}

// damages returns the corruptions of a pack, a revision and the head.
func damages(pack, rev string) []damaged {
	flip := func(b []byte) []byte {
		b = slices.Clone(b)
		b[len(b)/2] ^= 1
		return b
	}
	value := func(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }
	half := func(b []byte) []byte { return b[:len(b)/2] }
	none := func([]byte) []byte { return nil }
	return []damaged{
		{"a flipped bit of a pack", pack, flip, revisions.ErrDamaged, "does not match its name"},
		{"half a pack", pack, half, revisions.ErrDamaged, pack},
		{"no pack", pack, none, revisions.ErrDamaged, pack},
		{"a flipped bit of a revision", rev, flip, revisions.ErrDamaged, rev},
		{"no revision", rev, none, revisions.ErrDamaged, rev},
		{"a head that is not JSON", "head", value("hello"), revisions.ErrDamaged, "head"},
		{"an empty head", "head", value("{}"), revisions.ErrDamaged, "head"},
		{"half a head", "head", half, revisions.ErrDamaged, "head"},
		{"a newer head", "head", value(`{"format":4}`), revisions.ErrNewer, "head"},
		{"a head that refers to a missing revision", "head", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), rev[len(rev)-64:], strings.Repeat("ab", 32), 1))
		}, revisions.ErrDamaged, strings.Repeat("ab", 32)},
	}
}

// check corrupts a key of an engine whose newest revision is r2, and repairs it. The channel results
// is that of a watch on the engine.
func (c damaged) check(ctx context.Context, t *testing.T, e revisions.Engine, results <-chan watched) {
	t.Helper()
	was, err := e.Get(ctx, c.key)
	must(t, err)
	tamper(ctx, t, e, c.key, c.to(was))
	fresh := revisions.Open(e, revisions.Options{})
	_, err = fresh.Head(ctx)
	if err == nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), c.key) {
		t.Errorf("%s: %v, want %v, %s and %s", c.name, err, c.want, c.say, c.key)
	}
	before := len(keysOf(t, e, ""))
	if _, err := fresh.Sweep(ctx, 1); err == nil || len(keysOf(t, e, "")) != before {
		t.Errorf("%s: a sweep removed something, or returned no error: %v", c.name, err)
	}
	if c.key == "head" { // a running watch reports the error
		w := <-results
		if w.error == nil || !strings.Contains(w.Error(), "head") && !strings.Contains(w.Error(), c.say) {
			t.Errorf("%s: the watch yields %v", c.name, w)
		}
	}
	tamper(ctx, t, e, c.key, was)
	if c.key == "head" { // the watch reports the repair, too
		mustYield(t, results, 2)
	}
	if s, err := fresh.Head(ctx); err != nil || count(s, "a") != 2 {
		t.Errorf("%s: not repaired: %v", c.name, err)
	}
}

// damage: a corrupt value is an error that names its key, and the last good revision stays.
func damage(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := open(t)
	writer := revisions.Open(e, revisions.Options{})
	zero, err := writer.Head(ctx)
	must(t, err)
	one, err := writer.Commit(ctx, zero, revisions.Edit{Set: []*revisions.Item{counter("a", 1)}}, revisions.Note{})
	must(t, err)

	results, end := watching(ctx, revisions.Open(open(t), revisions.Options{Poll: 20 * time.Millisecond, Retry: time.Millisecond}))
	defer end()
	mustYield(t, results, 1)
	packs, revs := keysOf(t, e, "pack/"), keysOf(t, e, "revision/")
	two, err := writer.Commit(ctx, one, revisions.Edit{Set: []*revisions.Item{counter("a", 2)}}, revisions.Note{})
	must(t, err)
	mustYield(t, results, 2)
	head, err := e.Get(ctx, "head")
	must(t, err)
	newer := func(prefix string, old []string) string {
		all := keysOf(t, e, prefix)
		return slices.DeleteFunc(all, func(k string) bool { return slices.Contains(old, k) })[0]
	}
	rev := newer("revision/", revs)
	for _, c := range damages(newer("pack/", packs), rev) {
		c.check(ctx, t, e, results)
	}
	// An operator restores a backup of the head.
	tamper(ctx, t, e, "head", []byte(strings.NewReplacer(`"number":2`, `"number":1`, rev[len(rev)-64:], revs[0][len(revs[0])-64:]).Replace(string(head))))
	for w := range results {
		if w.error == nil {
			t.Fatal(w)
		}
		if errors.Is(w.error, revisions.ErrBackwards) {
			break
		}
	}
	tamper(ctx, t, e, "head", head)
	foreign(ctx, t, e, writer)
	_, err = writer.Commit(ctx, two, revisions.Edit{Set: []*revisions.Item{counter("a", 3)}}, revisions.Note{})
	must(t, err)
	for w := range results {
		if w.error == nil && w.Revision.Number == 3 {
			break
		}
	}
}

// foreign: a sweep keeps the keys of other programs.
func foreign(ctx context.Context, t *testing.T, e revisions.Engine, repo *revisions.Repository) {
	t.Helper()
	must(t, e.PutIfAbsent(ctx, "pack/of-others", []byte("x")))
	must(t, e.PutIfAbsent(ctx, "something/else", []byte("x")))
	swept, err := repo.Sweep(ctx, 1)
	must(t, err)
	if !slices.Equal(swept.Foreign, []string{"pack/of-others"}) || swept.Packs != 1 || swept.Revisions != 1 {
		t.Errorf("%+v", swept)
	}
	if got := len(keysOf(t, e, "something/")); got != 1 {
		t.Error("the sweep removed keys of other programs")
	}
}

// bodies: a body may have any size. Prepare gets each resource before the caller does.
func bodies(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx := t.Context()
	repo := revisions.Open(open(t), revisions.Options{})
	base, err := repo.Head(ctx)
	must(t, err)
	want := content{}
	var edit revisions.Edit
	for i, size := range []int{0, 1, 4096, 4097, 24 << 10, 512 << 10, 3 << 20} {
		body := slices.Repeat([]byte{byte(i + 1)}, size)
		it := &revisions.Item{Group: "g", Resource: xds.NewResource(xds.Cluster, strings.Repeat("n", i+1), body)}
		edit.Set = append(edit.Set, it)
		want[it.Key()] = says(it)
	}
	def := &revisions.Item{Group: "g", Definition: slices.Repeat([]byte("rules\n"), 1<<17)}
	edit.Set, want[def.Key()] = append(edit.Set, def), says(def)
	s, err := repo.Commit(ctx, base, edit, revisions.Note{})
	must(t, err)
	want.is(t, s)
	ref := []xds.Ref{{Type: xds.Cluster, Name: "x"}}
	other := revisions.Open(open(t), revisions.Options{Prepare: func(r *xds.Resource) { r.Refs = ref }})
	s, err = other.Head(ctx)
	must(t, err)
	want.is(t, s)
	for it := range s.All {
		if it.Resource != nil && (len(it.Resource.Refs) != 1 || it.Since != 1) {
			t.Errorf("%s: %v, %s", it.Key(), it.Resource.Refs, it.Since)
		}
	}
	for _, bad := range []*revisions.Item{{Definition: []byte("x")}, {Group: "g", Type: "t", Resource: edit.Set[0].Resource}, {Group: "g", Resource: &xds.Resource{}}, {Group: "g", Resource: xds.NewResource(xds.Cluster, strings.Repeat("n", 400_000), nil)}} {
		if _, err := repo.Commit(ctx, s, revisions.Edit{Set: []*revisions.Item{bad}}, revisions.Note{}); err == nil {
			t.Errorf("%v was committed", bad.Key().Group)
		}
	}
}
