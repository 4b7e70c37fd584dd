package protocol

import (
	"fmt"
	"slices"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// "A resource may be marked on demand: found by name and alias, part of no
// wildcard." The first answer to "*" does not have it; asking for it by name
// does; giving the name up under the wildcard says that it is not covered.
func TestOnDemand(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run("SUB-6 "+v.String(), func(t *testing.T) {
			lazy := xds.NewResource("lazy", []byte("1"))
			lazy.OnDemand = true
			tab := (&xds.Table{}).With([]*xds.Resource{lazy, xds.NewResource("plain", []byte("1"))})
			s := NewSession(v, nil, xds.Tables{xds.Cluster.URL: tab}, Options{})
			nonce := ""
			ask := func(names, sub, unsub []string) string {
				t.Helper()
				req := xds.Request{Type: xds.Cluster, Nonce: nonce, Names: names}
				if v == xds.Delta {
					req.Names, req.Subscribe, req.Unsubscribe = nil, sub, unsub
				}
				if err := s.Receive(req); err != nil {
					t.Fatal(err)
				}
				return said(s, &nonce)
			}
			want := func(step, got, sotw, delta string) {
				t.Helper()
				if w := map[xds.Variant]string{xds.SotW: sotw, xds.Delta: delta}[v]; got != w {
					t.Errorf("%s: got %s, want %s", step, got, w)
				}
			}
			want("everything", ask(nil, nil, nil), "[plain] []", "[plain] []")
			want("the name, too", ask([]string{"*", "lazy"}, []string{"lazy"}, nil), "[lazy plain] []", "[lazy] []")
			change := func(body string) string {
				next := xds.NewResource("lazy", []byte(body))
				next.OnDemand = true
				tab = tab.With([]*xds.Resource{next})
				ask([]string{"*", "lazy"}, nil, nil) // the ACK
				s.Change(xds.Tables{xds.Cluster.URL: tab}, []xds.Names{{xds.Cluster.URL: {"lazy"}}})
				return said(s, &nonce)
			}
			want("it changes", change("2"), "[lazy plain] []", "[lazy] []")
			want("no longer by name", ask([]string{"*"}, nil, []string{"lazy"}), "nothing", "[] [lazy]")
		})
	}
}

// said returns what the session sends now.
func said(s *Session, nonce *string) string {
	out := "nothing"
	for r := range s.Responses() {
		var names []string
		for _, x := range r.Upserts {
			names = append(names, x.Name)
		}
		slices.Sort(names)
		*nonce, out = r.Nonce, fmt.Sprint(names, r.Removed)
	}
	return out
}
