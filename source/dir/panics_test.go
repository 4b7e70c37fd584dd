package dir

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/panics"
)

func TestPanicsAreErrors(t *testing.T) {
	armed := true
	forms[".bomb"] = func(d *decoder) {
		if armed {
			panic("a bomb of the test goes off")
		}
		d.yaml()
	}
	defer delete(forms, ".bomb")
	logged := func(t *testing.T, b *fixture) *strings.Builder {
		var log strings.Builder
		b.src.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
		before := panics.Count()
		t.Cleanup(func() {
			if n := panics.Count() - before; n != 1 || strings.Count(log.String(), "msg=panic") != 1 || !strings.Contains(log.String(), "panics_test.go") {
				t.Errorf("%d panics: %s", n, log.String())
			}
		})
		return &log
	}
	t.Run("SAFE-8 a panic of a decoder is a mistake in its file", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		logged(t, b)
		b.load("CDS a")
		b.write("a.yaml", clusters("a", "b"), "c.bomb", clusters("c"))
		b.load("c.bomb: the reader gave up: a bomb of the test goes off")
		if got := b.content(); got != "CDS a" {
			t.Errorf("the store has %s", got)
		}
		armed = false
		b.write("c.bomb", clusters("d"))
		b.load("CDS a b d")
	})
	t.Run("SAFE-8 a review that panics changes nothing", func(t *testing.T) {
		b := newFixture(t, "a.yaml", clusters("a"))
		logged(t, b)
		b.load("CDS a")
		b.src.opts.Review = func([]Loaded) ([]Loaded, error) { panic("a bomb of the test goes off") }
		b.write("a.yaml", clusters("b"))
		b.load("panic: a bomb of the test goes off")
		if got := b.content(); got != "CDS a" {
			t.Errorf("the store has %s", got)
		}
		b.src.opts.Review = nil
		b.load("CDS b")
	})
}
