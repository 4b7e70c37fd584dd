package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"
)

// The reader of the token accepts only regular files, and stops at a limit.
func TestTokenFileIsRegularAndBounded(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := errors.Join(os.WriteFile(large, nil, 0o600), os.Truncate(large, 5<<20)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{os.DevNull: "a device, not a regular file", large: "has more than 4194304 bytes"} {
		t.Run("SAFE-9 "+filepath.Base(path), func(t *testing.T) {
			if _, err := readToken(path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// A read that hangs delays a request by at most a second, and runs once. The last token stays until it ends.
func TestHungTokenFile(t *testing.T) {
	t.Run("SAFE-9", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			var reads, under atomic.Int32
			var hangs chan struct{}
			says, fails := "one", error(nil)
			f := newTokenFile(func() (string, error) {
				reads.Add(1)
				under.Add(1)
				defer under.Add(-1)
				if hangs != nil {
					<-hangs
				}
				return says, fails
			}, slog.New(slog.NewTextHandler(&log, nil)))
			gets := func(want string, wrong bool, within time.Duration) {
				t.Helper()
				began := time.Now()
				if got, err := f.Token(); got != want || (err != nil) != wrong || time.Since(began) > within {
					t.Errorf("%q, %v after %v, want %q", got, err, time.Since(began), want)
				}
			}
			gets("one", false, 0)
			says = "two"
			gets("two", false, 0) // a new token works at once
			for range 2 {
				hangs = make(chan struct{})
				gets("two", false, disk.ReadTime)
				for range 100 {
					gets("two", false, 0)
				}
				if under.Load() != 1 {
					t.Errorf("%d reads", under.Load())
				}
				close(hangs)
				synctest.Wait()
				hangs = nil
				gets("two", false, 0)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 2 || reads.Load() != 6 {
				t.Errorf("%d warnings, %d reads:\n%s", n, reads.Load(), log.String())
			}
			says, fails = "", errors.New("not found")
			gets("", true, 0)
			says, fails = "three", nil
			gets("three", false, 0)
		})
		synctest.Test(t, func(t *testing.T) { // without an earlier token, no request is authorized
			var log bytes.Buffer
			hangs := make(chan struct{})
			f := newTokenFile(func() (string, error) { <-hangs; return "one", nil }, slog.New(slog.NewTextHandler(&log, nil)))
			if got, err := f.Token(); err == nil || log.Len() > 0 { // the caller logs the error
				t.Errorf("%q, %s", got, log.String())
			}
			close(hangs)
		})
	})
}
