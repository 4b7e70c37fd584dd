package bootstrap

import (
	"os/exec"
	"strings"
	"testing"
)

func TestEnvoyFiles(t *testing.T) {
	dir := t.TempDir()
	empty := func(name string) string { return write(t, dir, name, []byte("resources: []\n")) }
	listeners, clusters := empty("lds.yaml"), empty("cds.yaml")
	b, err := EnvoyFiles(Options{Node: "a"}, listeners, clusters, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id": "a"`, `"cluster": "` + DefaultCluster + `"`, `"port_value": 9901`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
	for want, o := range map[string]Options{
		"the node's id is missing":                            {},
		"cluster \"\\xff\" is not UTF-8":                      {Node: "a", Cluster: "\xff"},
		"--admin: localhost:1: Envoy listens on IP addresses": {Node: "a", Admin: "localhost:1"},
	} {
		if _, err := EnvoyFiles(o, listeners, clusters, dir); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}

	t.Run("FILE-5 Envoy accepts it and requires the files", func(t *testing.T) {
		needsEnvoy(t)
		path := write(t, dir, "bootstrap.json", b)
		if out, err := exec.CommandContext(t.Context(), envoyPath, "--mode", "validate", "--config-path", path).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		b, err := EnvoyFiles(Options{Node: "a"}, listeners, clusters+".not", dir)
		if err != nil {
			t.Fatal(err)
		}
		path = write(t, dir, "bootstrap.json", b)
		if out, err := exec.CommandContext(t.Context(), envoyPath, "--mode", "validate", "--config-path", path).CombinedOutput(); err == nil || !strings.Contains(string(out), "paths must refer to an existing path") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
