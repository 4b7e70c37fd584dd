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

// tamper puts another value under a key, as somebody with the tools of the engine could; nil: none.
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

// damage: what is not what it says is an error with its key, and what was read last stays.
func damage(t *testing.T, open func(*testing.T) revisions.Engine) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := open(t)
	writer := revisions.Open(e, revisions.Options{})
	zero, err := writer.Head(ctx)
	must(t, err)
	one, err := writer.Commit(ctx, zero, revisions.Edit{Set: []*revisions.Item{counter("a", 1)}}, revisions.Note{})
	must(t, err)

	watcher := revisions.Open(open(t), revisions.Options{Poll: 20 * time.Millisecond, Retry: time.Millisecond})
	type news struct {
		*revisions.Snapshot
		error
	}
	told, over := make(chan news), make(chan struct{})
	stop, end := context.WithCancel(ctx)
	go func() {
		defer close(over)
		for s, err := range watcher.Watch(stop, nil) {
			select {
			case told <- news{s, err}:
			case <-stop.Done():
				return
			}
		}
	}()
	defer func() { end(); <-over }()
	if n := <-told; n.error != nil || n.Revision.Number != 1 {
		t.Fatal(n)
	}
	packs, revs := keysOf(t, e, "pack/"), keysOf(t, e, "revision/")
	two, err := writer.Commit(ctx, one, revisions.Edit{Set: []*revisions.Item{counter("a", 2)}}, revisions.Note{})
	must(t, err)
	if n := <-told; n.error != nil || n.Revision.Number != 2 {
		t.Fatal(n)
	}
	head, err := e.Get(ctx, "head")
	must(t, err)
	newer := func(prefix string, old []string) string {
		all := keysOf(t, e, prefix)
		return slices.DeleteFunc(all, func(k string) bool { return slices.Contains(old, k) })[0]
	}
	pack, rev := newer("pack/", packs), newer("revision/", revs)
	flip := func(b []byte) []byte {
		b = slices.Clone(b)
		b[len(b)/2] ^= 1
		return b
	}
	for _, c := range []struct {
		name, key string
		to        func([]byte) []byte
		want      error
		say       string
	}{
		{"a bit of a pack", pack, flip, revisions.ErrDamaged, "is not that of its name"},
		{"half a pack", pack, func(b []byte) []byte { return b[:len(b)/2] }, revisions.ErrDamaged, pack},
		{"no pack", pack, func([]byte) []byte { return nil }, revisions.ErrDamaged, pack},
		{"a bit of a revision", rev, flip, revisions.ErrDamaged, rev},
		{"no revision", rev, func([]byte) []byte { return nil }, revisions.ErrDamaged, rev},
		{"a head of others", "head", func([]byte) []byte { return []byte("hello") }, revisions.ErrDamaged, "head"},
		{"a head of nothing", "head", func([]byte) []byte { return []byte("{}") }, revisions.ErrDamaged, "head"},
		{"half a head", "head", func(b []byte) []byte { return b[:len(b)/2] }, revisions.ErrDamaged, "head"},
		{"a newer head", "head", func([]byte) []byte { return []byte(`{"format":3}`) }, revisions.ErrNewer, "head"},
		{"a head that leads nowhere", "head", func(b []byte) []byte {
			return []byte(strings.Replace(string(b), rev[len(rev)-64:], strings.Repeat("ab", 32), 1))
		}, revisions.ErrDamaged, strings.Repeat("ab", 32)},
	} {
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
			t.Errorf("%s: a sweep removed something, or said nothing: %v", c.name, err)
		}
		if c.key == "head" { // whoever has read what it was finds out
			n := <-told
			if n.error == nil || !strings.Contains(n.Error(), "head") && !strings.Contains(n.Error(), c.say) {
				t.Errorf("%s: the watch told %v", c.name, n)
			}
		}
		tamper(ctx, t, e, c.key, was)
		if c.key == "head" { // and that it is well again
			if n := <-told; n.error != nil || n.Revision.Number != 2 {
				t.Errorf("%s: the watch told %v when it was mended", c.name, n)
			}
		}
		if s, err := fresh.Head(ctx); err != nil || count(s, "a") != 2 {
			t.Errorf("%s: not mended: %v", c.name, err)
		}
	}
	// Somebody puts a backup there.
	tamper(ctx, t, e, "head", []byte(strings.NewReplacer(`"number":2`, `"number":1`, rev[len(rev)-64:], revs[0][len(revs[0])-64:]).Replace(string(head))))
	for n := range told {
		if n.error == nil {
			t.Fatal(n)
		}
		if errors.Is(n.error, revisions.ErrBackwards) {
			break
		}
	}
	tamper(ctx, t, e, "head", head)

	must(t, e.PutIfAbsent(ctx, "pack/of-others", []byte("x")))
	must(t, e.PutIfAbsent(ctx, "something/else", []byte("x")))
	swept, err := writer.Sweep(ctx, 1)
	must(t, err)
	if !slices.Equal(swept.Foreign, []string{"pack/of-others"}) || swept.Packs != 1 || swept.Revisions != 1 {
		t.Errorf("%+v", swept)
	}
	if got := len(keysOf(t, e, "something/")); got != 1 {
		t.Error("what others have under the prefix is gone")
	}
	_, err = writer.Commit(ctx, two, revisions.Edit{Set: []*revisions.Item{counter("a", 3)}}, revisions.Note{})
	must(t, err)
	for n := range told {
		if n.error == nil && n.Revision.Number == 3 {
			break
		}
	}
}

// bodies: they may be of any size, and whoever prepares resources sees each before others do.
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
