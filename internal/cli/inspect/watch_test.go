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

// The time of --for ends a watch of a running server, too, in which nothing happens.
func TestWatchFor(t *testing.T) {
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

// The count of a denial is how often, and not of resources.
func TestDenyLine(t *testing.T) {
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
