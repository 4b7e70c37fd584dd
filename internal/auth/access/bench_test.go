package access_test

import (
	"fmt"
	"testing"

	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// many returns the streams of n identities. There are n secrets, and each identity sees one of them.
func many(b *testing.B, n int, rule string) (*store.Store, []*access.View) {
	st := store.New()
	src := access.New(st, policy(b, rule), access.Options{Identity: identity})
	_, err := st.Update(func(tx *store.Tx) error {
		for i := range n {
			tx.Set(secret(i, 0))
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	views := make([]*access.View, n)
	for i := range views {
		name := fmt.Sprintf("n%d", i)
		if views[i], err = src.Watch(called(access.Identity{Kind: access.MTLS, DNS: []string{name}}), &xds.Node{ID: name}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(views[i].Close)
		views[i].Interested(xds.Secret, true, nil, nil)
		if view, _, err := views[i].Next(); err != nil || view.Table(xds.Secret).Len() != 1 {
			b.Fatal("the stream does not see its own secret")
		}
	}
	return st, views
}

func secret(i, n int) *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: fmt.Sprintf("n%d/cert", i)}, Type: xds.Secret, Body: []byte(fmt.Sprint(n))}
	r.Seal("")
	return r
}

// BenchmarkUpdate measures one stream's time for an update. One of 10,000 secrets changes. Each of
// 10,000 streams sees one secret, subscribes to the wildcard, and looks for changes.
func BenchmarkUpdate(b *testing.B) {
	for name, rule := range map[string]string{
		"pattern": `rules: [{identity: {dns: "{n}"}, secrets: ["{n}/*"]}]`,
		"name":    `rules: [{identity: {dns: "{n}"}, secrets: ["{n}/cert"]}]`,
	} {
		b.Run(name, func(b *testing.B) {
			const n = 10_000
			st, views := many(b, n, rule)
			b.ResetTimer()
			b.ReportAllocs()
			for i := range b.N {
				if i%n == 0 {
					if _, err := st.Update(func(tx *store.Tx) error { tx.Set(secret(i/n%n, 1+i)); return nil }); err != nil {
						b.Fatal(err)
					}
				}
				view, _, err := views[i%n].Next()
				if err != nil || view.Table(xds.Secret).Len() != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen opens a stream that sees one of 10,000 secrets.
func BenchmarkOpen(b *testing.B) {
	for name, rule := range map[string]string{
		"pattern": `rules: [{identity: {dns: "{n}"}, secrets: ["{n}/*"]}]`,
		"name":    `rules: [{identity: {dns: "{n}"}, secrets: ["{n}/cert"]}]`,
	} {
		b.Run(name, func(b *testing.B) {
			st := store.New()
			src := access.New(st, policy(b, rule), access.Options{Identity: identity})
			if _, err := st.Update(func(tx *store.Tx) error {
				for i := range 10_000 {
					tx.Set(secret(i, 0))
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			ctx := called(access.Identity{Kind: access.MTLS, DNS: []string{"n7"}})
			b.ReportAllocs()
			for b.Loop() {
				v, err := src.Watch(ctx, &xds.Node{ID: "n7"})
				if err != nil {
					b.Fatal(err)
				}
				view, _, _ := v.Next()
				view.Table(xds.Secret)
				v.Close()
			}
		})
	}
}

// BenchmarkDecide decides by 1,000 rules, one of which matches the identity.
func BenchmarkDecide(b *testing.B) {
	rules := "rules:\n"
	for i := range 1000 {
		rules += fmt.Sprintf("- {identity: {uri: \"spiffe://prod/ns/n%d/sa/{sa}\"}, node: {id: \"{sa}\"}, secrets: [\"{sa}/*\"]}\n", i)
	}
	p := policy(b, rules)
	id := access.Identity{Kind: access.MTLS, URIs: []string{"spiffe://prod/ns/n500/sa/web"}}
	b.ReportAllocs()
	for b.Loop() {
		g, err := p.Decide(id, &xds.Node{ID: "web"})
		if err == nil {
			_, err = g.In([]string{"default"})
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
