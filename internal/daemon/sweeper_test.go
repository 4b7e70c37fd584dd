package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/revisions/file"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
	"github.com/chancery-xds/chancery/xds"
)

// A denying engine denies all leases.
type denying struct{ revisions.Engine }

func (denying) Lease(context.Context, string) (context.Context, func(), error) {
	return nil, nil, fmt.Errorf("lease/sweep: %w", revisions.ErrDenied)
}

// A server sweeps when the store has a tenth more revisions than it should keep. Denied permission is logged
// once.
func TestSweeperKeepsNumberOfRevisions(t *testing.T) {
	at := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		e, err := file.Open(at, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		repo := revisions.Open(e, revisions.Options{})
		commit := func() {
			base, err := repo.Head(t.Context())
			if err == nil {
				it := &revisions.Item{Group: "default", Resource: xds.NewResource(xds.Cluster, fmt.Sprint(base.Revision.Number), nil)}
				_, err = repo.Commit(t.Context(), base, revisions.Edit{Set: []*revisions.Item{it}}, revisions.Note{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var may, mayNot logtest.Log
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			(&sweeper{repo: repo, keep: 20, log: slog.New(slog.NewTextHandler(&may, nil))}).run(ctx)
		})
		running.Go(func() {
			other := revisions.Open(denying{e}, revisions.Options{})
			(&sweeper{repo: other, keep: 2, log: slog.New(slog.NewTextHandler(&mayNot, nil))}).run(ctx)
		})
		for range 21 {
			commit()
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if _, err := repo.At(t.Context(), 1); err != nil || may.String() != "" {
			t.Errorf("%v, %s", err, may.String())
		}
		commit()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if due, err := repo.Due(t.Context(), 20); due != 0 || err != nil || !strings.Contains(may.String(), `msg="store was swept" oldest=r3 revisions=2`) {
			t.Errorf("%d, %v, %s", due, err, may.String())
		}
		stop()
		running.Wait()
		if got := mayNot.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "no permission to sweep the store") {
			t.Error(got)
		}
	})
}
