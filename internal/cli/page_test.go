package cli

import (
	"net/url"
	"testing"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// The URL of a view has each part as one segment. A unix socket has no page.
func TestPageURL(t *testing.T) {
	for _, tt := range []struct {
		server string
		query  url.Values
		parts  []string
		want   string
	}{
		{"", nil, nil, adminclient.DefaultURL + "/"},
		{"https://h:1/", url.Values{"q": {"group:a b"}}, []string{"clients"}, "https://h:1/clients?q=group%3Aa+b"},
		{"http://h:1", nil, []string{"clients", "edge/1?x#y%"}, "http://h:1/clients/edge%2F1%3Fx%23y%25"},
		{"unix:///run/x.sock", nil, []string{"clients"}, ""},
	} {
		a := AdminFlags{Target: adminclient.Target{URL: tt.server}}
		if got := a.PageURL(tt.query, tt.parts...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.server, got, tt.want)
		}
	}
}
