package lazy

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/panics"
	"github.com/chancery-xds/chancery/xds"
)

func TestPanics(t *testing.T) {
	on(t, "SAFE-8 a resolver that panics has failed", func(b *bench) {
		before := panics.Count()
		b.be.set("r/a r/b", res("r/a", "A", "r/b"))
		find := b.resolver
		var safe atomic.Bool
		b.resolver = func(ctx context.Context, q Query) (*xds.Resource, error) {
			if !safe.Load() && q.Name == "r/b" {
				panic("a bomb of the test goes off")
			}
			return find(ctx, q)
		}
		s := b.stream("")
		defer s.w.Close()
		s.subscribe("r/a", "r/b")
		b.sleep(50 * time.Millisecond)
		if log := b.log.String(); panics.Count() == before || !strings.Contains(log, "level=ERROR msg=panic") || !strings.Contains(log, "panics_test.go") || !strings.Contains(log, "name=r/b") {
			t.Errorf("%d panics: %s", panics.Count()-before, log)
		}
		safe.Store(true)
		b.sleep(time.Minute)
		s.is("r/a=A r/b=A")
	})
}
