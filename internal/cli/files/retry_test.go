package files

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"

	"github.com/chancery-xds/chancery/internal/envoy/export"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A failed export is retried after a while, without any event, and its error is logged once.
func TestFailedExportIsRetried(t *testing.T) {
	t.Run("FILE-5 what could not be written is written when it can be", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			e := &exporter{out: t.TempDir(), watch: true, store: store.New(), log: slog.New(slog.NewTextHandler(&log, nil))}
			e.source = dir.New("", e.store, dir.Options{})
			c, err := wire.NewResource(xds.Cluster, "", &clusterv3.Cluster{Name: "a"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.store.Update(func(tx *store.Tx) error { tx.Set(c); return nil }); err != nil {
				t.Fatal(err)
			}
			if e.to, err = export.Open(e.out, e.options); err != nil {
				t.Fatal(err)
			}
			defer e.to.Close()
			obstacle := filepath.Join(e.out, ".generations")
			if err := os.WriteFile(obstacle, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done, changed := make(chan struct{}), make(chan struct{}, 1)
			go func() { defer close(done); e.follow(ctx, changed, nil, nil) }()
			changed <- struct{}{}
			time.Sleep(3 * retryInterval) // enough time for several retries
			synctest.Wait()
			if err := os.Remove(obstacle); err != nil {
				t.Fatal(err)
			}
			time.Sleep(retryInterval + time.Second)
			cancel()
			<-done
			if n := strings.Count(log.String(), "export failed"); n != 1 || strings.Count(log.String(), "msg=exported") != 1 {
				t.Errorf("%d failures are logged:\n%s", n, &log)
			}
			if _, err := os.Stat(filepath.Join(e.out, "current", "cds.yaml")); err != nil {
				t.Error(err)
			}
		})
	})
}
