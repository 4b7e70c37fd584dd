package envoy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The embedded set contains the files of the pinned modules, which are the modules that tests link.
func TestSetIsCurrent(t *testing.T) {
	to := t.TempDir()
	cmd := exec.Command("go", "run", ".", to)
	cmd.Dir = "../../tools/descriptors"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	was, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := os.ReadFile(filepath.Join(to, "descriptors.binpb.gz"))
	if err != nil {
		t.Fatal(err)
	}
	now, err := unpack(fresh) // the compressed bytes may change with Go
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(filepath.Join(to, "modules.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(was, now) || modules != string(list) {
		t.Error("the set is out of date: make descriptors")
	}
	linked, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Version}}", "all").Output()
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(linked)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions[path] = version
	}
	for line := range strings.Lines(modules) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		if other, ok := versions[path]; ok && other != version {
			t.Errorf("%s is %s in tools/descriptors/go.mod, and %s in go.mod", path, version, other)
		}
	}
}

func TestVersion(t *testing.T) {
	if v := Version(); !strings.HasPrefix(v, "v1.") {
		t.Error(v)
	}
}

// Every file of the set can be built, and every name is found.
func TestWholeSet(t *testing.T) {
	n := 0
	Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		n++
		if again, err := Envoy().FindMessageByURL("type.googleapis.com/" + string(mt.Descriptor().FullName())); err != nil || again != mt {
			t.Error(mt.Descriptor().FullName(), err)
		}
		return true
	})
	if n < 2000 {
		t.Errorf("only %d messages: is contrib missing?", n)
	}
	for _, name := range []protoreflect.FullName{
		"envoy.config.cluster.v3.Cluster", "envoy.api.v2.Cluster", "xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct", "google.protobuf.StringValue",
		"envoy.extensions.filters.http.golang.v3alpha.Config", "envoy.extensions.filters.network.postgres_proxy.v3alpha.PostgresProxy",
		"envoy.config.cluster.v3.Cluster.EdsClusterConfig",
	} {
		if _, err := Envoy().FindMessageByName(name); err != nil {
			t.Error(name, err)
		}
	}
	for _, name := range []protoreflect.FullName{"", "envoy", "Cluster", "envoy.config.cluster.v3.Cluster.name", "envoy.config.cluster.v3.Cluster.None", "envoy.service.discovery.v3.AggregatedDiscoveryService"} {
		if m, err := Envoy().FindMessageByName(name); err == nil {
			t.Error(name, m)
		}
	}
}

// Concurrent first calls share one build.
func TestConcurrentFirstUse(t *testing.T) {
	types := fresh(t)
	found := make([]protoreflect.MessageType, 8)
	var wg sync.WaitGroup
	for i := range found {
		wg.Go(func() { found[i], _ = types.FindMessageByName("envoy.config.listener.v3.Listener") })
	}
	wg.Wait()
	for _, mt := range found {
		if mt == nil || mt != found[0] {
			t.Error("calls return different values")
		}
	}
}

// Unused files are not built.
func TestUnusedFilesAreNotBuilt(t *testing.T) {
	types := fresh(t)
	types.New("envoy.config.cluster.v3.Cluster")
	n := 0
	types.built.RangeFiles(func(protoreflect.FileDescriptor) bool { n++; return true })
	if n == 0 || n > 60 {
		t.Errorf("%d files for a cluster, of %d", n, len(types.files))
	}
	if _, err := protoregistry.GlobalFiles.FindFileByPath("contrib/envoy/extensions/filters/http/golang/v3alpha/golang.proto"); err == nil {
		t.Error("the message is registered globally")
	}
}

// fresh returns the types of Envoy's API with no file built.
func fresh(t *testing.T) *Types {
	t.Helper()
	all := newTypes()
	for path, f := range Envoy().files {
		if _, err := all.add(f); err != nil {
			t.Fatal(path, err)
		}
	}
	return all
}

func TestNewPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for an unknown message")
		}
	}()
	_ = proto.Size(Envoy().New("envoy.None").Interface())
}
