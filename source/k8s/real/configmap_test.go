package real

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// The manifests of chancery export --configmap become the directory again, also after a change.
func testConfigMaps(t *testing.T, k *kube) {
	cluster := func(name string) string {
		return "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: " + name + "\n"
	}
	large := "# " + strings.Repeat("x", 700<<10) + "\n"
	files := map[string]string{
		"_bootstrap.yaml":     "admin: {}\n",
		"cluster.yaml":        cluster("a"),
		"edge/group.yaml":     "match: {cluster: edge}\n",
		"edge/secret.yaml":    "\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: s\ngeneric_secret: {secret: {inline_string: hush}}\n",
		"edge/b c.yaml":       cluster("b") + "# \u200b\r\n",
		"large/1.yaml":        large,
		"large/deep/2.yaml":   large,
		"large/deep/3.yaml":   large,
		"large/deep/4/5.yaml": "# \u00fc \t\n\n\n",
	}
	deployments := k.client.AppsV1().Deployments("chancery")
	b, err := os.ReadFile("../../../deploy/kubernetes/chancery.yaml")
	k.must(err)
	text, _, _ := strings.Cut(string(b), "\n---\n")
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
	k.must(err)
	_, err = deployments.Create(t.Context(), o.(*apps.Deployment), meta.CreateOptions{})
	k.must(err)

	for _, change := range []func(){
		func() {},
		func() {
			files["cluster.yaml"] = cluster("c")
			delete(files, "large/deep/2.yaml")
			files["new/d.yaml"] = cluster("d")
		},
		func() { delete(files, "edge/secret.yaml") },
	} {
		change()
		dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
		for path, content := range files {
			path = filepath.Join(dir, path)
			k.must(os.MkdirAll(filepath.Dir(path), 0o700))
			k.must(os.WriteFile(path, []byte(content), 0o600))
		}
		said, err := exec.Command(filepath.Join(*programs, "chancery"), "export", dir, "--configmap", "chancery-config", "--out", out).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		k.apply(filepath.Join(out, "configmaps.yaml"))
		if files["edge/secret.yaml"] != "" {
			k.apply(filepath.Join(out, "secrets.yaml"))
		}
		b, err := os.ReadFile(filepath.Join(out, "deployment.patch"))
		k.must(err)
		patch, err := yaml.ToJSON(b)
		k.must(err)
		d, err := deployments.Patch(t.Context(), "chancery", types.StrategicMergePatchType, patch, meta.PatchOptions{})
		k.must(err)
		if got := k.mounted(d.Spec.Template.Spec); !maps.Equal(got, files) {
			for path, content := range files {
				if got[path] != content {
					t.Errorf("%s: %.60q, want %.60q", path, got[path], content)
				}
			}
			t.Errorf("%d files, want %d", len(got), len(files))
		}
	}
}

// apply applies the ConfigMaps and Secrets of a file, as kubectl apply --server-side does.
func (k *kube) apply(path string) {
	k.Helper()
	b, err := os.ReadFile(path)
	k.must(err)
	for text := range bytes.SplitSeq(b, []byte("\n---\n")) {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		k.must(err)
		options := meta.PatchOptions{FieldManager: "kubectl", FieldValidation: "Strict"}
		switch o := o.(type) {
		case *core.ConfigMap:
			_, err = k.client.CoreV1().ConfigMaps("chancery").Patch(k.Context(), o.Name, types.ApplyYAMLPatchType, text, options)
		case *core.Secret:
			_, err = k.client.CoreV1().Secrets("chancery").Patch(k.Context(), o.Name, types.ApplyYAMLPatchType, text, options)
		}
		k.must(err)
	}
}

// mounted returns the files of the volume at /config, as the kubelet makes them of the objects.
func (k *kube) mounted(pod core.PodSpec) map[string]string {
	k.Helper()
	files := map[string]string{}
	if n := len(pod.Containers[0].VolumeMounts); n != 2 {
		k.Errorf("%d mounts", n)
	}
	for _, v := range pod.Volumes {
		if v.Name != "config" {
			continue
		}
		if v.ConfigMap != nil || v.Projected == nil {
			k.Fatalf("volume %v", v)
		}
		for _, s := range v.Projected.Sources {
			data := map[string][]byte{}
			var items []core.KeyToPath
			if s.ConfigMap != nil {
				o, err := k.client.CoreV1().ConfigMaps("chancery").Get(k.Context(), s.ConfigMap.Name, meta.GetOptions{})
				k.must(err)
				maps.Copy(data, o.BinaryData)
				for key, value := range o.Data {
					data[key] = []byte(value)
				}
				items = s.ConfigMap.Items
			} else {
				o, err := k.client.CoreV1().Secrets("chancery").Get(k.Context(), s.Secret.Name, meta.GetOptions{})
				k.must(err)
				data, items = o.Data, s.Secret.Items
			}
			for _, i := range items {
				value, ok := data[i.Key]
				if !ok {
					k.Errorf("no key %q", i.Key)
				}
				files[i.Path] = string(value)
			}
		}
	}
	return files
}
