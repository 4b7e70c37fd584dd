package files

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
)

// A user whose server does not answer gets a notice, and then an error after the timeout.
func TestReloadReportsSlowServer(t *testing.T) {
	mine := errors.New("mine")
	for _, tt := range []struct {
		name    string
		takes   time.Duration
		err     error
		timeout time.Duration
		lasts   time.Duration
		said    int
		want    string
	}{
		{"an answer at once", 0, nil, time.Minute, 0, 0, ""},
		{"an answer before anybody is impatient", noticeAfter - 1, nil, time.Minute, noticeAfter - 1, 0, ""},
		{"a slow answer", 30 * time.Second, nil, time.Minute, 30 * time.Second, 1, ""},
		{"an error", time.Second, mine, time.Minute, time.Second, 0, "mine"},
		{"no answer", time.Hour, nil, 2 * time.Minute, 2 * time.Minute, 1, "the server has not answered for 2m0s"},
		{"no answer, and little time", time.Hour, nil, time.Second, time.Second, 0, "the server has not answered for 1s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stderr bytes.Buffer
				start := time.Now()
				r, err := askWithNotice(&stderr, tt.timeout, func(ctx context.Context) (reloadsocket.Reload, error) {
					select {
					case <-time.After(tt.takes):
						return reloadsocket.Reload{Files: 7}, tt.err
					case <-ctx.Done():
						return reloadsocket.Reload{}, ctx.Err()
					}
				})
				if took := time.Since(start); took != tt.lasts {
					t.Errorf("it took %v, want %v", took, tt.lasts)
				}
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || err == nil && r.Files != 7 {
					t.Errorf("%+v, %v, want %s", r, err, tt.want)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := strings.Count(stderr.String(), "chancery: the server has not answered for 10s: waiting"); n != tt.said {
					t.Errorf("said %d times: %s", n, stderr.String())
				}
			})
		})
	}
}
