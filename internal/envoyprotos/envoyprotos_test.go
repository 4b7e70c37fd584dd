package envoyprotos

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"google.golang.org/protobuf/reflect/protoregistry"
)

func TestListIsCurrent(t *testing.T) {
	want, err := exec.Command("go", "run", "gen.go", "-n").Output()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("protos.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("protos.go is out of date: run go generate")
	}
}

func TestRegistered(t *testing.T) {
	for _, url := range []string{
		"type.googleapis.com/envoy.config.cluster.v3.Cluster",
		"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
		"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
		"type.googleapis.com/xds.type.v3.TypedStruct",
		"type.googleapis.com/udpa.type.v1.TypedStruct",
		"type.googleapis.com/google.protobuf.StringValue",
	} {
		if _, err := protoregistry.GlobalTypes.FindMessageByURL(url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
