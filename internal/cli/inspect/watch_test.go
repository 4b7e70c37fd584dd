package inspect

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

// --for ends a watch of a running server without events.
func TestWatchEndsAfterFor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	cmd := Watch()
	cmd.SetArgs([]string{"--for", "50ms", "--admin", server.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := cmd.ExecuteContext(ctx); err != nil || ctx.Err() != nil {
		t.Error(err, ctx.Err())
	}
}

// The count of a denial is the number of attempts, not the number of resources.
func TestDenialShowsNumberOfAttempts(t *testing.T) {
	for times, want := range map[int]string{
		1: ` deny      vm 127.0.0.1:5 a connection that proves no identity may not be node "vm"`,
		7: ` deny      vm 127.0.0.1:5 7 times a connection that proves no identity may not be node "vm"`,
	} {
		var b strings.Builder
		printEvent(&b, api.Event{At: time.Now(), Kind: "deny", Node: "vm", Peer: "127.0.0.1:5", Count: times, Text: `a connection that proves no identity may not be node "vm"`})
		if got := strings.TrimSpace(b.String()); !strings.HasSuffix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
