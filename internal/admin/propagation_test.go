package admin

import (
	"reflect"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
)

// The answer about propagation asks for a few clients in each state without the newest configuration.
func TestMissingClients(t *testing.T) {
	f := newFleet()
	f.all = append(f.all, api.Client{Node: "slow", State: api.Stale, Types: []api.TypeStatus{{Type: "CDS", State: api.Synced}, {Type: "LDS", State: api.Stale}}})
	w := ask(newServer(f).Handler(loopback), "GET /api/v1/propagation", "")
	if want := (clients.Filter{States: []api.State{api.Nacked, api.Stale, api.Waiting, api.Sent, api.NotSent}, Limit: 20}); !reflect.DeepEqual(f.asked, want) {
		t.Errorf("the clients are %+v, want %+v", f.asked, want)
	}
	if got := w.Body.String(); !strings.Contains(got, `{"node":"slow","state":"STALE","type":"LDS"}`) || strings.Contains(got, "edge-2") {
		t.Error(got)
	}
}
