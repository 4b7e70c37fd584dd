package files

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/cli"
)

// exportConfigMap runs export --configmap of files, and returns OUT.
func exportConfigMap(t *testing.T, files map[string]string) (string, error) {
	t.Helper()
	in, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for path, content := range files {
		path = filepath.Join(in, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := Export()
	cmd.SetArgs([]string{in, "--configmap", "c", "--out", out})
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	return out, cmd.Execute()
}

// mounted returns the files of a volume of the manifests in a directory, and the number of objects.
func mounted(t *testing.T, out string) (files map[string]string, objects int) {
	t.Helper()
	var p struct {
		Spec struct {
			Template struct {
				Spec struct {
					Volumes []struct {
						Projected struct{ Sources []volumeSource }
					}
				}
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(out, patchFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, name := range []string{configMapsFile, secretsFile} {
		b, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			continue // no secrets
		}
		for d := yaml.NewDecoder(bytes.NewReader(b)); ; {
			var o object
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			objects++
			total := 0
			for _, part := range []map[string]string{o.Data, o.BinaryData} {
				for key, value := range part {
					if !regexp.MustCompile(`^[-._a-zA-Z0-9]{1,253}$`).MatchString(key) || strings.HasPrefix(key, "..") {
						t.Errorf("key %q", key)
					}
					if _, isBinary := o.BinaryData[key]; isBinary || o.Kind == "Secret" {
						raw, err := base64.StdEncoding.DecodeString(value)
						if err != nil {
							t.Fatal(err)
						}
						value = string(raw)
					}
					total += len(value)
					values[o.Kind+" "+o.Metadata.Name+" "+key] = value
				}
			}
			if total > 1<<20 {
				t.Errorf("%s %s has %d bytes", o.Kind, o.Metadata.Name, total)
			}
		}
	}
	files = map[string]string{}
	for _, s := range p.Spec.Template.Spec.Volumes[0].Projected.Sources {
		kind, from := "ConfigMap", s.ConfigMap
		if s.Secret != nil {
			kind, from = "Secret", s.Secret
		}
		for _, i := range from.Items {
			files[i.Path] = values[kind+" "+from.Name+" "+i.Key]
		}
	}
	return files, objects
}

// binaryCluster returns a file with a cluster that is no text.
func binaryCluster(t *testing.T) string {
	t.Helper()
	a, err := anypb.New(&clusterv3.Cluster{Name: strings.Repeat("d", 200)})
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{a}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestExportConfigMapKeepsEveryFile(t *testing.T) {
	text := func(n int) string { return "# " + strings.Repeat("x ", n/2-2) + "\n\n" }
	cluster := "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n"
	many := map[string]string{"cluster.yaml": cluster}
	for i := range 300 {
		many[strings.Repeat("d/", i%7)+strings.Repeat("long-name-", 20)+strconv.Itoa(i)+".yaml"] = "# x"
	}
	for name, c := range map[string]struct {
		files   map[string]string
		objects int
	}{
		"one object":           {map[string]string{"cluster.yaml": cluster, "a/b/c.yaml": text(100)}, 1},
		"several objects":      {map[string]string{"cluster.yaml": cluster, "a/1.yaml": text(600 << 10), "a/2.yaml": text(600 << 10), "b.yaml": text(300 << 10), "c.yaml": text(900 << 10)}, 3},
		"a file of almost 1 M": {map[string]string{"cluster.yaml": cluster, "a.yaml": text(1<<20 - 100)}, 2},
		"many long names":      {many, 1},
		"a binary file":        {map[string]string{"c.yaml": cluster, "d.pb": binaryCluster(t)}, 1},
		"equal keys":           {map[string]string{"c.yaml": cluster, "a/b.yaml": "# 1\n", "a.b.yaml": "# 2\n", "ä.yaml": "# 3\n", "ö.yaml": "# 4\n", "-.yaml": "# 5\n"}, 1},
		"text that YAML changes easily": {map[string]string{"c.yaml": cluster, "1.yaml": "#\r\n# windows\r\n", "2.yaml": "  # indented\n\n\n", "3.yaml": "\n\n# x", "4.yaml": "# tab\t\n#  \n", "5.yaml": "# \u200b \ufeff ü 😀\n",
			"6.yaml": "\ufeff# mark\n", "7.yaml": "---\n# x\n...\n", "8.yaml": "# x\n\n\n", "9.yaml": "\t\n# x\n", "10.yaml": " \n# x\n", "11.json": `{"resources": []}`, "12.yaml": "#" + strings.Repeat(" long", 100) + "\n", "13.yaml": "# x \n#\n  \n"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exportConfigMap(t, c.files)
			if err != nil {
				t.Fatal(err)
			}
			got, objects := mounted(t, out)
			if len(got) != len(c.files) || objects != c.objects {
				t.Errorf("%d files in %d objects, want %d in %d", len(got), objects, len(c.files), c.objects)
			}
			for path, want := range c.files {
				if got[path] != want {
					t.Errorf("%s: %.60q, want %.60q", path, got[path], want)
				}
			}
			if b, err := os.ReadFile(filepath.Join(out, configMapsFile)); err != nil || bytes.Contains(b, []byte("!!binary")) {
				t.Error("Kubernetes has no binary text:", err)
			}
		})
	}
}

// A secret that no resource contains is in a Secret too.
func TestSAFE6ExportConfigMapHidesUnreadSecrets(t *testing.T) {
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n"
	for name, c := range map[string]struct {
		path, text string
		secret     bool
	}{
		"an ignored key":               {"a.yaml", "!ignore spare:\n- inline_string: hunter2\n" + cluster, true},
		"an ignored key on its line":   {"a.yaml", cluster + "metadata: {!ignore password: hunter2}\n", true},
		"an ignored key with a key":    {"a.yaml", "!ignore spare: |\n  -----BEGIN EC BLOB-----\n  aaaa\n" + cluster, true},
		"a comment":                    {"a.yaml", cluster + "# password: hunter2\n", true},
		"a comment behind a value":     {"a.yaml", cluster + "connect_timeout: 1s # token hunter2\n", true},
		"a comment with PEM":           {"a.yaml", cluster + "# -----BEGIN EC BLOB-----\n# aaaa\n", true},
		"a comment of a group":         {"edge/group.yaml", "match: {cluster: edge} # password: hunter2\n", true},
		"a comment of a bootstrap":     {"_bootstrap.yaml", "node: {id: a, cluster: b} # password: hunter2\n", true},
		"a comment in the text format": {"a.txtpb", "# proto-message: envoy.config.cluster.v3.Cluster\n# password: hunter2\nname: \"d\"\n", true},
		"a harmless comment":           {"a.yaml", "# shared by all teams\n" + cluster, false},
		"a harmless ignored key":       {"a.yaml", "!ignore spare: &t 1s\n" + cluster + "connect_timeout: *t\n", false},
		"a name of a secret as value":  {"a.yaml", cluster + "alt_stat_name: password # slow\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exportConfigMap(t, map[string]string{c.path: c.text, "z.yaml": strings.Replace(cluster, "name: c", "name: z", 1)})
			if err != nil {
				t.Fatal(err)
			}
			if files, _ := mounted(t, out); files[c.path] != c.text {
				t.Errorf("%q", files[c.path])
			}
			open, err := os.ReadFile(filepath.Join(out, configMapsFile))
			if err != nil {
				t.Fatal(err)
			}
			key := strings.ReplaceAll(c.path, "/", ".") + ":"
			if info, err := os.Stat(filepath.Join(out, secretsFile)); (err == nil) != c.secret || err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
			if bytes.Contains(open, []byte("hunter2")) || bytes.Contains(open, []byte("BEGIN")) || bytes.Contains(open, []byte(key)) == c.secret {
				t.Errorf("%s", open)
			}
		})
	}
}

// An export replaces and removes only files of an earlier export.
func TestExportConfigMapKeepsFilesOfOthers(t *testing.T) {
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n"
	in, out := t.TempDir(), t.TempDir()
	run := func(text string) error {
		if err := os.WriteFile(filepath.Join(in, "c.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := Export()
		cmd.SetArgs([]string{in, "--configmap", "c", "--out", out})
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		return cmd.Execute()
	}
	for _, name := range []string{configMapsFile, secretsFile, patchFile} {
		path := filepath.Join(out, name)
		if err := os.WriteFile(path, []byte("theirs"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(cluster)
		if f, ok := errors.AsType[cli.Failure](err); !ok || !strings.Contains(err.Error(), path+" exists, and is not of an export") || f.Hint == "" {
			t.Error(err)
		}
		if got, err := os.ReadFile(path); string(got) != "theirs" {
			t.Errorf("%q %v", got, err)
		}
		if entries, err := os.ReadDir(out); len(entries) != 1 {
			t.Error(entries, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(out, ".new"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []bool{true, false, true} {
		text := cluster
		if secret {
			text += "# password: hunter2\n"
		}
		if err := run(text); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(out, secretsFile)); (err == nil) != secret {
			t.Error(secret, err)
		}
	}
	if _, err := os.Stat(filepath.Join(out, ".new")); err != nil {
		t.Error(err)
	}
}

func TestExportConfigMapRefusesLargeFile(t *testing.T) {
	_, err := exportConfigMap(t, map[string]string{"edge/large.yaml": "# " + strings.Repeat("x", 1<<20)})
	if err == nil || !strings.Contains(err.Error(), "nothing to export") {
		t.Error(err)
	}
	out, err := exportConfigMap(t, map[string]string{"a.yaml": "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: c\n", "edge/large.yaml": "# " + strings.Repeat("x", 1<<20)})
	if f, ok := errors.AsType[cli.Failure](err); !ok || !strings.Contains(err.Error(), "edge/large.yaml: 1048578 bytes: a ConfigMap or Secret has at most 1 MiB") || f.Hint == "" {
		t.Error(err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an error writes files")
	}
}
