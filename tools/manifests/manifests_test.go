// Package manifests tests the Helm chart, the manifests and the compose file of deploy/.
package manifests

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	compose "github.com/compose-spec/compose-go/v2/cli"
	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/chancery-xds/chancery/internal/cli/files"
	"github.com/chancery-xds/chancery/internal/daemon"
)

const deploy = "../../deploy/"

var update = flag.Bool("update", false, "write the files that these tests compare")

// render returns the manifests of the chart in the namespace and with the name "chancery".
func render(t *testing.T, values map[string]any) (string, error) {
	t.Helper()
	chart, err := loader.LoadDir(deploy + "helm/chancery")
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "chancery", Namespace: "chancery", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(chart, all)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if text := strings.TrimSpace(rendered[name]); text != "" && path.Ext(name) == ".yaml" {
			b.WriteString("---\n" + text + "\n")
		}
	}
	return b.String(), err
}

// decode returns the objects of manifests. An unknown or repeated field is an error.
func decode(t *testing.T, manifests string) (all []runtime.Object) {
	t.Helper()
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for text := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		o, _, err := strict.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		all = append(all, o)
	}
	return all
}

// find returns the only object of a type.
func find[T runtime.Object](t *testing.T, all []runtime.Object) (found T) {
	t.Helper()
	n := 0
	for _, o := range all {
		if is, ok := o.(T); ok {
			found = is
			n++
		}
	}
	if n != 1 {
		t.Fatalf("%d objects of type %T", n, found)
	}
	return found
}

// checkServe checks the arguments of "chancery serve".
func checkServe(t *testing.T, args []string) {
	t.Helper()
	if len(args) < 2 || args[0] != "serve" || args[1] != "/config" {
		t.Fatalf("arguments %q", args)
	}
	if err := daemon.Command().ParseFlags(args[2:]); err != nil {
		t.Errorf("arguments %q: %v", args, err)
	}
}

// checkPod checks that mounts and volumes agree, and the arguments of the server.
func checkPod(t *testing.T, pod core.PodSpec) {
	t.Helper()
	mounted, volumes := map[string]bool{}, map[string]bool{}
	for _, c := range pod.Containers {
		for _, m := range c.VolumeMounts {
			mounted[m.Name] = true
		}
	}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	if !maps.Equal(mounted, volumes) {
		t.Errorf("mounts %v of volumes %v", mounted, volumes)
	}
	checkServe(t, pod.Containers[0].Args)
}

var everything = map[string]any{
	"volume":    map[string]any{"projected": map[string]any{"sources": []any{map[string]any{"secret": map[string]any{"name": "c"}}}}},
	"tlsSecret": "tls",
	"args":      []any{"--max-streams=1000"},
	"endpoints": map[string]any{"enabled": true, "args": []any{"--all"}},
}

func TestChart(t *testing.T) {
	minimal := map[string]any{"files": map[string]any{"a.yaml": "# one\n---\n# two\n"}}
	for name, values := range map[string]map[string]any{"minimal": minimal, "everything": everything} {
		t.Run(name, func(t *testing.T) {
			text, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			all := decode(t, text)
			d, s := find[*apps.Deployment](t, all), find[*core.Service](t, all)
			checkPod(t, d.Spec.Template.Spec)
			for _, selector := range []map[string]string{d.Spec.Selector.MatchLabels, s.Spec.Selector} {
				if !maps.Equal(selector, d.Spec.Template.Labels) {
					t.Errorf("%v does not select %v", selector, d.Spec.Template.Labels)
				}
			}
		})
	}
	if _, err := render(t, nil); err == nil || !strings.Contains(err.Error(), "files or volume is needed") {
		t.Errorf("without a configuration: %v", err)
	}
}

// The chart and the manifests of deploy/kubernetes run the same pod.
func TestChartEqualsManifests(t *testing.T) {
	text, err := render(t, map[string]any{"volume": map[string]any{"configMap": map[string]any{"name": "chancery-config"}}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(deploy + "kubernetes/chancery.yaml")
	if err != nil {
		t.Fatal(err)
	}
	chart, manifest := find[*apps.Deployment](t, decode(t, text)), find[*apps.Deployment](t, decode(t, string(b)))
	checkPod(t, manifest.Spec.Template.Spec)
	if got, want := chart.Spec.Template.Spec, manifest.Spec.Template.Spec; !reflect.DeepEqual(got, want) {
		t.Errorf("the chart has %+v\nwant %+v", got, want)
	}
}

// deploy/chancery-k8s.yaml is the chart with endpoints. The tests of chancery-k8s check its arguments.
func TestEndpointsManifest(t *testing.T) {
	text, err := render(t, map[string]any{
		"volume":    map[string]any{"configMap": map[string]any{"name": "chancery-config"}},
		"endpoints": map[string]any{"enabled": true, "args": []any{"backend=shop/backend:http"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	decode(t, text)
	got := `# Two replicas that serve the ConfigMap chancery-config. Each has a chancery-k8s, which registers the endpoints of the
# service "backend" in the namespace "shop" as those of the cluster "backend". docs/kubernetes.md explains it.
#
#   kubectl create namespace chancery
#   kubectl -n chancery apply -f deploy/chancery-k8s.yaml
#
# The Helm chart made this file: cd tools/manifests && go test . -update
` + strings.TrimPrefix(text, "---\n")
	if *update {
		if err := os.WriteFile(deploy+"chancery-k8s.yaml", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(deploy + "chancery-k8s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("deploy/chancery-k8s.yaml differs from the chart: go test . -update\n%s", got)
	}
}

// The patch of chancery export --configmap replaces the ConfigMap of the Deployment by a projected volume.
func TestConfigMapPatch(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	for name, content := range map[string]string{
		"cluster.yaml": "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: a\n",
		"group.yaml":   "otherwise: default\n",
		"secret.yaml":  "\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: s\ngeneric_secret: {secret: {inline_string: hush}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runCommand(t, files.Export(), dir, "--configmap", "c", "--out", out)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	configMap := find[*core.ConfigMap](t, decode(t, string(read(filepath.Join(out, "configmaps.yaml")))))
	secret := find[*core.Secret](t, decode(t, string(read(filepath.Join(out, "secrets.yaml")))))
	if configMap.Data["group.yaml"] != "otherwise: default\n" || !bytes.Contains(secret.Data["secret.yaml"], []byte("hush")) || len(configMap.Data) != 2 {
		t.Errorf("%v, %v", configMap.Data, secret.Data)
	}

	before := find[*apps.Deployment](t, decode(t, string(read(deploy+"kubernetes/chancery.yaml"))))
	original, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := yaml.ToJSON(read(filepath.Join(out, "deployment.patch")))
	if err != nil {
		t.Fatal(err)
	}
	patched, err := strategicpatch.StrategicMergePatch(original, patch, apps.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	pod := find[*apps.Deployment](t, decode(t, string(patched))).Spec.Template.Spec
	checkPod(t, pod)
	mode := int32(0o440)
	want := []core.VolumeProjection{
		{ConfigMap: &core.ConfigMapProjection{LocalObjectReference: core.LocalObjectReference{Name: "c"}, Items: []core.KeyToPath{{Key: "cluster.yaml", Path: "cluster.yaml"}, {Key: "group.yaml", Path: "group.yaml"}}}},
		{Secret: &core.SecretProjection{LocalObjectReference: core.LocalObjectReference{Name: "c"}, Items: []core.KeyToPath{{Key: "secret.yaml", Path: "secret.yaml", Mode: &mode}}}},
	}
	i := slices.IndexFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == "config" })
	if v := pod.Volumes[i]; v.ConfigMap != nil || v.Projected == nil || !reflect.DeepEqual(v.Projected.Sources, want) || len(pod.Volumes) != 2 {
		t.Errorf("%+v", pod.Volumes)
	}
}

func TestCompose(t *testing.T) {
	o, err := compose.NewProjectOptions([]string{deploy + "compose/compose.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context()) // checks the file by the schema, and that services refer to each other
	if err != nil {
		t.Fatal(err)
	}
	checkServe(t, p.Services["chancery"].Command)
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.Build != nil {
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	want, err := os.ReadFile(deploy + "compose/envoy.json")
	if err != nil {
		t.Fatal(err)
	}
	got := runCommand(t, files.Bootstrap(), "envoy", "--node", "envoy", "--cluster", "compose", "--server", "chancery:18000")
	if got != string(want) {
		t.Errorf("deploy/compose/envoy.json differs from chancery bootstrap envoy:\n%s", got)
	}
	runCommand(t, files.Check(), deploy+"compose/config")
}

// runCommand runs a command of chancery, and returns its output.
func runCommand(t *testing.T, cmd *cobra.Command, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	if err := cmd.Execute(); err != nil {
		t.Fatalf("%s %q: %v\n%s", cmd.Name(), args, err, out.String())
	}
	return out.String()
}
