package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A read of the access rules that hangs runs once, is logged once, and does not delay the end of the server.
func TestHungAccessFile(t *testing.T) {
	t.Run("SAFE-9", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			reads, hangs := 0, make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			a := accessRules("access.yaml")
			go func() {
				defer close(ended)
				a.repeat(ctx, slog.New(slog.NewTextHandler(&log, nil)), func() {
					reads++
					if reads == 2 {
						<-hangs
					}
				})
			}()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := strings.Count(log.String(), "a read of the access rules does not end"); reads != 2 || n != 1 {
				t.Errorf("%d reads, %d warnings:\n%s", reads, n, log.String())
			}
			cancel()
			synctest.Wait()
			select {
			case <-ended:
			default:
				t.Error("a read that hangs delays the end")
			}
			close(hangs)
			<-ended
		})
		synctest.Test(t, func(t *testing.T) { // after the end of the read, the file is read again
			reads, hangs := 0, make(chan struct{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			time.AfterFunc(30*time.Second, func() { close(hangs) })
			accessRules("access.yaml").repeat(ctx, slog.New(slog.DiscardHandler), func() {
				reads++
				<-hangs
			})
			synctest.Wait() // the last read may have begun
			if reads < 25 {
				t.Errorf("%d reads", reads)
			}
		})
	})
}
