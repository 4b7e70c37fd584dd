package server_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A client that refuses a resource for some time accepts it in the end, without a change of the resource. A
// repeated refusal is logged once for each text.
func TestRefusedContentIsRetried(t *testing.T) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run("HEAL-2 "+v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := store.New()
				if _, err := st.Update(func(tx *store.Tx) error {
					tx.Set(xds.NewResource(xds.Cluster, "a", []byte{10, 1, 'a'}))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				srv := server.New(st, server.WithRetryRefused(), server.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				c := xdstest.SotW(t, xdstest.Serve(t, srv), xdstest.WithNode(xds.Node{ID: "n"}), xdstest.WithTimeout(time.Hour))
				if v == xds.Delta {
					c = xdstest.Delta(t, xdstest.Serve(t, srv), xdstest.WithNode(xds.Node{ID: "n"}), xdstest.WithTimeout(time.Hour))
				}
				c.Subscribe(xds.Cluster, "*")
				began := time.Now()
				for _, text := range []string{"no", "no", "no", "no", "never", "never", "never", "never"} {
					c.NACK(c.Expect(xds.Cluster, "a"), text)
				}
				if took := time.Since(began); took < 615*time.Second || took > 615*time.Second*6/5 {
					t.Errorf("7 retries took %v, want 5+10+20+40+80+160+300 s and up to a fifth more", took)
				}
				c.ACK(c.Expect(xds.Cluster, "a"))
				time.Sleep(time.Hour)
				c.ExpectNothing()
				synctest.Wait()
				if n := strings.Count(log.String(), "client refused a response (NACK)"); n != 2 {
					t.Errorf("%d lines for one refusal with two texts:\n%s", n, &log)
				}
			})
		})
	}
}
