package xdsclient

import (
	"testing"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

func TestBodyCheckRejectsUnreadableBody(t *testing.T) {
	check := BodyCheck(envoy.Envoy(), xds.MemoryLimit{})
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

// "chancery state" shows for which relay or agent a folder was made.
func TestFolderOfClientHasLabel(t *testing.T) {
	t.Run("SAFE-10", func(t *testing.T) {
		root := t.TempDir()
		up, err := client.GRPC("127.0.0.1:1", client.GRPCOptions{Credentials: insecure.NewCredentials()})
		if err != nil {
			t.Fatal(err)
		}
		c, err := NewClientWithLastGood(client.Config{Node: &xds.Node{ID: "n"}, Servers: []client.Server{{Transport: up}}}, root, true, "/xds://up", "relay of xds://up", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if all, err := lastgood.List(root); err != nil || len(all) != 1 || all[0].Description != "relay of xds://up" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}
