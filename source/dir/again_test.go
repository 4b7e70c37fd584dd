package dir

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// kept returns a stored configuration of n clusters with texts of a size. One cluster changes with
// turn.
func kept(n, bytes, turn int) lastgood.Config {
	t := lastgood.Type{Type: xds.Cluster}
	for i := range n {
		text := fmt.Sprintf("%0*d", bytes, 0)
		if i == 0 {
			text = fmt.Sprintf("%0*d", bytes, turn)
		}
		name := fmt.Sprintf("c%06d", i)
		body := append([]byte{0x0a, byte(len(name))}, name...)                                        // name
		body = append(append(body, 0xe2, 0x01, byte(len(text)&127|128), byte(len(text)>>7)), text...) // alt_stat_name
		r := xds.NewResource(xds.Cluster, name, body)
		t.Resources = append(t.Resources, lastgood.Resource{Resource: r, File: "a.yaml", Line: i + turn})
	}
	return lastgood.Config{Types: []lastgood.Type{t}}
}

// A restore does not decode resources again that are equal to those of the last configuration. Only
// their places change.
func TestRestoreReusesEqualResources(t *testing.T) {
	src := New("", store.New(), Options{Log: slog.New(slog.DiscardHandler)})
	var before [2]*xds.Resource
	for turn := range 3 {
		if err := src.Restore(kept(2, 200, turn)); err != nil {
			t.Fatal(err)
		}
		at := src.home.content.types[xds.Cluster.URL].at
		changed, same := at["c000000"], at["c000001"]
		if changed.Resource == before[0] {
			t.Errorf("turn %d: the changed resource was not read", turn)
		}
		if turn > 0 && same.Resource != before[1] {
			t.Errorf("turn %d: the equal resource was read again", turn)
		}
		if same.Refs == nil {
			t.Errorf("turn %d: the references are unknown", turn)
		}
		if same.Line != 1+turn {
			t.Errorf("turn %d: the resource is in line %d", turn, same.Line)
		}
		before = [2]*xds.Resource{changed.Resource, same.Resource}
	}
	said := func(version string, onDemand bool, turn int) *xds.Resource {
		t.Helper()
		c := kept(1, 200, turn)
		r := c.Types[0].Resources[0].Resource
		r.OnDemand = onDemand
		r.Seal(version)
		if err := src.Restore(c); err != nil {
			t.Fatal(err)
		}
		return src.home.content.types[xds.Cluster.URL].at[r.Name].Resource
	}
	for what, other := range map[string]func() *xds.Resource{
		"version": func() *xds.Resource { return said("other", false, 1) },
		"content": func() *xds.Resource { return said("said", false, 2) },
		"manner":  func() *xds.Resource { return said("said", true, 1) },
	} {
		if was, is := said("said", false, 1), other(); is == was {
			t.Errorf("a resource with another %s is reused", what)
		}
	}
}

// A scratch source shares equal resources with its source, and does not change the source.
func TestScratchSharesResources(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	st := store.New()
	src := New("", st, Options{Log: log})
	if err := src.Scratch(Options{Log: log}).Restore(kept(3, 200, 0)); err != nil { // nothing is served yet
		t.Fatal(err)
	}
	if err := src.Restore(kept(3, 200, 0)); err != nil {
		t.Fatal(err)
	}
	version := st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Version()
	here := src.home.content.types[xds.Cluster.URL].at
	next := kept(3, 200, 1)
	next.Types[0].Resources = next.Types[0].Resources[:2]
	quiet := src.Scratch(Options{Log: log, References: true})
	if err := quiet.Restore(next); err != nil {
		t.Fatal(err)
	}
	there := quiet.home.content.types[xds.Cluster.URL].at
	if len(there) != 2 || there["c000001"].Resource != here["c000001"].Resource || there["c000000"].Resource == here["c000000"].Resource {
		t.Errorf("%v, beside %v", there, here)
	}
	if now := src.home.content.types[xds.Cluster.URL].at; len(now) != 3 || now["c000001"].Line != 1 || st.Snapshot().View(store.DefaultGroup).Table(xds.Cluster).Version() != version {
		t.Error("the scratch source changed its source")
	}
	if _, ok := src.Lookup("edge", xds.Cluster, "c000002"); ok {
		t.Error("another group has the resource")
	}
	if _, ok := src.Lookup("default", xds.Cluster, "c000002"); !ok {
		t.Error("the resource is missing in the source")
	}
}

// BenchmarkRestore restores a revision in which one cluster of 1 KB changed.
func BenchmarkRestore(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			src := New("", store.New(), Options{Log: slog.New(slog.DiscardHandler), References: true})
			two := [2]lastgood.Config{kept(n, 1000, 1), kept(n, 1000, 2)}
			if err := src.Restore(two[1]); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := src.Restore(two[i%2]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
