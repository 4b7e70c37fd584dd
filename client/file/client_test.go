package file

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

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

// counts are the updates that the client's metrics counted.
type counts struct{ valid, invalid int }

func (*counts) Connected(string, bool)                {}
func (*counts) ServerFailure(string)                  {}
func (*counts) Resources(string, string, string, int) {}
func (c *counts) ResourceUpdates(_, _ string, good, bad int) {
	c.valid, c.invalid = c.valid+good, c.invalid+bad
}

// "Refusals counted and logged with place; the last good stays."
func TestClientKeepsLastGoodOfInvalidFile_FILE3(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.yaml")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		write(clusters("a"))
		made, err := New(path, Options{Poll: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		made.(*transport).watcher = func(*slog.Logger, time.Duration) *watch.Watcher { return new(watch.Watcher) }
		var log bytes.Buffer
		met := &counts{}
		c, err := client.New(client.Config{Servers: []client.Server{{Transport: made}}, Metrics: met, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e, err := range c.Watch(ctx, xds.Cluster, "a") {
				if err == nil {
					told = append(told, e.Kind.String())
				}
			}
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if *met != (counts{1, 0}) {
			t.Errorf("%+v", *met)
		}
		write("resources:\n  - x: [")
		if met.valid != 1 || met.invalid != 1 {
			t.Errorf("%+v", *met)
		}
		if got := log.String(); strings.Count(got, "refused resources") != 1 || !strings.Contains(got, path+":2:9: ") {
			t.Errorf("the log is %q", got)
		}
		cancel()
		<-done
		if got := strings.Join(told, " "); got != "updated" {
			t.Errorf("told %s", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
