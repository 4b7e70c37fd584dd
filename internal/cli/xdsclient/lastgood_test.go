package xdsclient

import (
	"testing"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

func TestBodyCheckRejectsUnreadableBody(t *testing.T) {
	check := BodyCheck(envoy.Envoy())
	for _, tt := range []struct {
		typ  *xds.Type
		body string
		bad  bool
	}{
		{xds.Cluster, "\x0a\x01a", false},
		{xds.Cluster, "\x0a\x02a", true},
		{xds.Cluster, "\x1a\x01a", true}, // a field with a message that cannot be decoded
		{xds.TypeOf("type.googleapis.com/x.Y"), "\x0a\x02a", false},
	} {
		if err := check(xds.NewResource(tt.typ, "a", []byte(tt.body))); (err != nil) != tt.bad {
			t.Errorf("%s %q: %v", tt.typ, tt.body, err)
		}
	}
}
