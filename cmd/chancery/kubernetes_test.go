package main

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// The manifests of deploy/kubernetes are consistent, and the server runs with them.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	type port struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	type container struct {
		Args         []string
		Ports        []port
		Ready        probe `yaml:"readinessProbe"`
		Live         probe `yaml:"livenessProbe"`
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
			SubPath   string `yaml:"subPath"`
		} `yaml:"volumeMounts"`
	}
	type object struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Data       map[string]string
		Spec       struct {
			Selector any
			Ports    []struct {
				Name       string
				TargetPort string `yaml:"targetPort"`
			}
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Grace      int `yaml:"terminationGracePeriodSeconds"`
					Containers []container
					Volumes    []struct {
						Name      string
						ConfigMap struct{ Name string } `yaml:"configMap"`
					}
				}
			}
		}
	}
	all := map[string]object{}
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for d := yaml.NewDecoder(f); ; {
			var o object
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if o.APIVersion == "" || o.Metadata.Name == "" || all[o.Kind].Kind != "" {
				t.Errorf("%s: %s %q", path, o.Kind, o.Metadata.Name)
			}
			all[o.Kind] = o
		}
	}
	deployment, service, config := all["Deployment"], all["Service"], all["ConfigMap"]
	pod := deployment.Spec.Template
	if len(pod.Spec.Containers) != 1 || len(config.Data) == 0 || service.Kind == "" {
		t.Fatalf("the objects are: %v", slices.Collect(maps.Keys(all)))
	}
	c := pod.Spec.Containers[0]
	mounts := map[string]string{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m.MountPath
		if m.SubPath != "" {
			t.Errorf("%s is a subPath, which is never updated", m.Name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if mounts[v.Name] == "" || v.ConfigMap.Name != "" && v.ConfigMap.Name != config.Metadata.Name {
			t.Errorf("volume %v", v)
		}
		delete(mounts, v.Name)
	}
	if len(mounts) > 0 {
		t.Errorf("no volumes: %v", mounts)
	}
	named := map[string]int{}
	for _, p := range c.Ports {
		named[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		if named[p.TargetPort] == 0 {
			t.Errorf("service: no port %q", p.TargetPort)
		}
	}
	for _, s := range []any{deployment.Spec.Selector.(map[string]any)["matchLabels"], service.Spec.Selector, all["PodDisruptionBudget"].Spec.Selector.(map[string]any)["matchLabels"]} {
		for k, v := range s.(map[string]any) {
			if pod.Metadata.Labels[k] != v {
				t.Errorf("no pod is selected by %s: %v", k, v)
			}
		}
	}

	// The server runs with the directory, state and addresses of this test.
	dir, state := t.TempDir(), t.TempDir()
	for name, text := range config.Data {
		write(t, dir, name, text)
	}
	if out, err := exec.Command(binary, "check", "--strict", dir).CombinedOutput(); err != nil {
		t.Errorf("the ConfigMap: %v\n%s", err, out)
	}
	if c.Args[0] != "serve" || c.Args[1] != "/config" {
		t.Fatal(c.Args)
	}
	var flags []string
	times := time.Duration(0)
	for _, a := range c.Args[2:] {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			t.Errorf("%s: write it as --flag=value", a)
		}
		switch name {
		case "--state-dir":
			a = name + "=" + state
		case "--listen", "--metrics-listen":
			if _, p, _ := net.SplitHostPort(value); !slices.ContainsFunc(c.Ports, func(q port) bool { return p == strconv.Itoa(q.ContainerPort) }) {
				t.Errorf("%s is at no port of the container", a)
			}
			a = name + "=127.0.0.1:0"
		case "--drain", "--drain-delay":
			d, _ := time.ParseDuration(value)
			times += d
		}
		flags = append(flags, a)
	}
	if grace := time.Duration(pod.Spec.Grace) * time.Second; grace < times+5*time.Second {
		t.Errorf("the pod ends after %v, the server within %v", grace, times)
	}
	d := serveDir(t, dir, flags...)
	for _, p := range []probe{c.Ready, c.Live} {
		if p.HTTPGet.Port != "metrics" {
			t.Errorf("probe at port %q", p.HTTPGet.Port)
		}
		r, err := http.Get("http://" + d.http + p.HTTPGet.Path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", p.HTTPGet.Path, r.Status)
		}
	}
}
