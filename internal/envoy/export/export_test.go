package export

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/chancery-xds/chancery/internal/envoy/bootstrap"
	"github.com/chancery-xds/chancery/internal/testkit/tabletest"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

var with = tabletest.With

// resourceList is a list of resources. A VirtualHost or LbEndpoint is wrapped in named, because its
// resource name is not a field of the message.
type resourceList []any

type named struct {
	proto.Message
	name string
}

func (w resourceList) view(t testing.TB) xds.Tables {
	t.Helper()
	view := xds.Tables{}
	for _, m := range w {
		n, ok := m.(named)
		if !ok {
			n.Message = m.(proto.Message)
		}
		typ := xds.TypeOf("type.googleapis.com/" + string(n.ProtoReflect().Descriptor().FullName()))
		r, err := wire.NewResource(typ, n.name, n.Message)
		if err != nil {
			t.Fatal(err)
		}
		if view[typ.URL] == nil {
			view[typ.URL] = xds.NewTable(typ)
		}
		view[typ.URL] = with(view[typ.URL], []*xds.Resource{r})
	}
	return view
}

func ads() *corev3.ConfigSource {
	return &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}}
}

func eds(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name: name, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{EdsConfig: ads()},
	}
}

func assignment(name string, port uint32) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{LbEndpoints: []*endpointv3.LbEndpoint{endpoint(port)}}}}
}

func endpoint(port uint32) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: &corev3.Address{
		Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}}}}}}}
}

func routes(name string, clusters ...string) *routev3.RouteConfiguration {
	h := host("all")
	for _, c := range clusters {
		h.Routes = append(h.Routes, &routev3.Route{
			Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/" + c}},
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: c}}},
		})
	}
	return &routev3.RouteConfiguration{Name: name, VirtualHosts: []*routev3.VirtualHost{h}}
}

func host(name string) *routev3.VirtualHost {
	return &routev3.VirtualHost{Name: name, Domains: []string{name + ".example"}}
}

func listener(t testing.TB, name string, m *hcmv3.HttpConnectionManager) *listenerv3.Listener {
	return &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{Name: "hcm", ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: packed(t, m)}}},
	}}}
}

func rds(t testing.TB, name, route string) *listenerv3.Listener {
	return listener(t, name, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
		Rds: &hcmv3.Rds{RouteConfigName: route, ConfigSource: ads()}}})
}

func secret(name, content string) *tlsv3.Secret {
	return &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_GenericSecret{GenericSecret: &tlsv3.GenericSecret{
		Secret: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: content}}}}}
}

func packed(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// A site is an export directory with its exporter.
type site struct {
	*Exporter
	t    *testing.T
	root string
}

func open(t *testing.T, root string, o Options) *site {
	t.Helper()
	if o.Bootstrap == nil {
		o.Bootstrap = func(listeners, clusters, watched string) ([]byte, error) {
			return bootstrap.EnvoyFiles(bootstrap.Options{Node: "n"}, listeners, clusters, watched)
		}
	}
	e, err := Open(root, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	e.grace = 0
	return &site{e, t, root}
}

// export exports resources and returns the report.
func (s *site) export(w resourceList) Report {
	s.t.Helper()
	r, err := s.Export(s.t.Context(), w.view(s.t))
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// read returns the files that Envoy reads, by path.
func (s *site) read() map[string]string {
	s.t.Helper()
	all := map[string]string{}
	root, err := filepath.EvalSymlinks(filepath.Join(s.root, "current"))
	if err != nil {
		s.t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, path)
		all[rel] = string(b)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// tidy fails the test if the directory contains anything that is not part of the export.
func (s *site) tidy() {
	s.t.Helper()
	to, err := os.Readlink(filepath.Join(s.root, "current"))
	if err != nil {
		s.t.Fatal(err)
	}
	if got, want := names(s.t, s.root), []string{".generations", "bootstrap.json", "current"}; !slices.Equal(got, want) {
		s.t.Errorf("entries %q, want %q", got, want)
	}
	if got, want := names(s.t, filepath.Join(s.root, ".generations")), []string{filepath.Base(to)}; !slices.Equal(got, want) {
		s.t.Errorf("generations %q, want %q", got, want)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestExportReplacesLink(t *testing.T) {
	t.Run("FILE-5 a rename replaces the link, and unchanged files stay", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		w := resourceList{eds("a"), assignment("a", 1), eds("b"), assignment("b", 2)}
		s.export(w)
		before := map[string]os.FileInfo{}
		for path := range s.read() {
			info, err := os.Stat(filepath.Join(s.root, "current", path))
			if err != nil {
				t.Fatal(err)
			}
			before[path] = info
		}
		link, err := os.Lstat(filepath.Join(s.root, "current"))
		if err != nil {
			t.Fatal(err)
		}
		if r := s.export(w); r.Steps != 0 || r.Written != 0 {
			t.Errorf("export without a change: %+v", r)
		}
		w[1] = assignment("a", 3)
		if r := s.export(w); r.Steps != 1 || r.Written != 1 {
			t.Errorf("export after an endpoint changed: %+v", r)
		}
		if now, _ := os.Lstat(filepath.Join(s.root, "current")); os.SameFile(link, now) {
			t.Error("the link was not replaced")
		}
		for path, was := range before {
			now, err := os.Stat(filepath.Join(s.root, "current", path))
			if err != nil {
				t.Fatal(err)
			}
			if same := os.SameFile(was, now); same != (path != "eds/a.yaml") {
				t.Errorf("%s: the same file: %v", path, same)
			}
		}
		if r := s.export(w[:2]); r.Removed != 1 || s.read()["eds/b.yaml"] != "" {
			t.Errorf("export after an assignment was deleted: %+v", r)
		}
		s.tidy()
	})
}

func TestExport(t *testing.T) {
	t.Run("FILE-4 one file for each collective type, and for each other resource", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		r := s.export(resourceList{eds("a"), eds("b"), assignment("a", 1), assignment("b", 2), rds(t, "l", "r"), routes("r", "a"), secret("s", "x"),
			&corev3.TypedExtensionConfig{Name: "e", TypedConfig: packed(t, secret("any", "message"))}})
		want := []string{"_bootstrap.json", "cds.yaml", "ecds/e.yaml", "eds/a.yaml", "eds/b.yaml", "lds.yaml", "rds/r.yaml", "sds/s.yaml", "srds.yaml"}
		if got := slices.Sorted(maps.Keys(s.read())); !slices.Equal(got, want) {
			t.Errorf("files %q, want %q", got, want)
		}
		if want := (Report{Resources: 8, Files: 9, Steps: 1, Written: 9, Watches: 5}); !cmp.Equal(r, want) {
			t.Error(cmp.Diff(want, r))
		}
		s.tidy()
	})

	for _, f := range formats {
		t.Run("FILE-4 the next exporter continues: "+f.name, func(t *testing.T) {
			root := t.TempDir()
			w := resourceList{eds("a"), assignment("a", 1), secret("s", "a\nb\n"), rds(t, "l", "r"), routes("r", "a")}
			s := open(t, root, Options{Format: f, Settle: time.Nanosecond})
			s.export(w)
			was := s.read()
			s.Close()
			s = open(t, root, Options{Format: f, Settle: time.Nanosecond})
			if r := s.export(w); r.Steps != 0 || r.Written != 0 {
				t.Errorf("export without a change: %+v", r)
			}
			if d := cmp.Diff(was, s.read()); d != "" {
				t.Error(d)
			}
			// The cluster to be removed is known only from the exported file.
			if r := s.export(resourceList{eds("b"), assignment("b", 1), rds(t, "l", "r"), routes("r", "b")}); r.Steps != 4 {
				t.Errorf("export of another cluster: %+v", r)
			}
			s.tidy()
		})
	}

	t.Run("FILE-4 a missing resource has an empty file", func(t *testing.T) {
		s := open(t, t.TempDir(), Options{})
		r := s.export(resourceList{eds("a"), rds(t, "l", "r")})
		want := []string{
			`CDS "a" refers to EDS "a", which does not exist: its file is empty`,
			`LDS "l" refers to RDS "r", which does not exist: its file is empty`,
		}
		if !slices.Equal(r.Warnings, want) {
			t.Errorf("warnings %q, want %q", r.Warnings, want)
		}
		for _, path := range []string{"eds/a.yaml", "rds/r.yaml"} {
			if got := s.read()[path]; !strings.HasSuffix(got, "resources: []\n") {
				t.Errorf("%s: %q", path, got)
			}
		}
	})

	t.Run("FILE-4 Envoy may read the files at another path", func(t *testing.T) {
		for prefix, want := range map[string]string{"/etc/envoy": "/etc/envoy/current/", "/etc/envoy/": "/etc/envoy/current/", ".": "current/", "": ""} {
			s := open(t, t.TempDir(), Options{Prefix: prefix})
			if prefix == "" {
				want = s.root + "/current/"
			}
			s.export(resourceList{eds("a"), assignment("a", 1)})
			if got := s.read(); !strings.Contains(got["cds.yaml"], "path: "+quote(want+"eds/a.yaml")+"\n") || !strings.Contains(got["_bootstrap.json"], `"`+want+`cds.yaml"`) ||
				!strings.Contains(got["cds.yaml"], "watched_directory:\n          path: "+quote(path.Dir(path.Clean(want)))+"\n") {
				t.Errorf("prefix %q:\n%s\n%s", prefix, got["cds.yaml"], got["_bootstrap.json"])
			}
		}
	})
}

func TestOpen(t *testing.T) {
	exported := func(t *testing.T, o Options) string {
		root := t.TempDir()
		s := open(t, root, o)
		s.export(resourceList{eds("a")})
		s.Close()
		return root
	}
	for name, tt := range map[string]struct {
		make func(t *testing.T, root string)
		want string
	}{
		"a file in place of the link": {func(t *testing.T, root string) { write(t, filepath.Join(root, "current"), "") }, "current exists, and is not part of an export"},
		"a foreign link":              {func(t *testing.T, root string) { symlink(t, "elsewhere", filepath.Join(root, "current")) }, "current exists, and is not part of an export"},
		"a foreign bootstrap":         {func(t *testing.T, root string) { write(t, filepath.Join(root, "bootstrap.json"), "{}") }, "bootstrap.json exists, and is not part of an export"},
		"invalid clusters file":       {func(t *testing.T, root string) { swapped(t, root, exported(t, Options{}), "cds.yaml", "{") }, "the last export is damaged: remove "},
		"a socket in place of a file": {func(t *testing.T, root string) {
			swapped(t, root, exported(t, Options{}), "", "")
			path := filepath.Join(root, ".generations/1/eds/a.yaml")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			symlink(t, "../cds.yaml", path)
		}, "a.yaml exists, and is not part of an export"},
		"an export of another format": {func(t *testing.T, root string) { swapped(t, root, exported(t, Options{Format: formats[3]}), "", "") }, "has an export in another format than yaml"},
		"a dangling link is accepted": {func(t *testing.T, root string) { symlink(t, ".generations/7", filepath.Join(root, "current")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			tt.make(t, root)
			e, err := Open(root, Options{})
			if err == nil {
				defer e.Close()
			}
			if got := errorText(err); !strings.Contains(got, tt.want) || (tt.want == "") != (got == "") {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}

	t.Run("SAFE-11 the target of a link is not removed", func(t *testing.T) {
		root, victim := t.TempDir(), t.TempDir()
		write(t, filepath.Join(victim, "precious"), "x")
		symlink(t, victim, filepath.Join(root, ".generations"))
		if _, err := Open(root, Options{}); !strings.Contains(errorText(err), ".generations exists, and is not part of an export") {
			t.Error(err)
		}
		if got := names(t, victim); len(got) != 1 {
			t.Error("remaining files:", got)
		}
	})
	t.Run("SAFE-11 files that no export made are not removed", func(t *testing.T) {
		for _, path := range []string{"precious", "0/precious", "next/precious", "zz/lds.yaml"} {
			root := exported(t, Options{})
			write(t, filepath.Join(root, ".generations", path), "x")
			first, _, _ := strings.Cut(path, "/")
			if _, err := Open(root, Options{}); !strings.Contains(errorText(err), filepath.Join(".generations", first)+" exists, and is not part of an export") {
				t.Error(path, err)
			}
			if _, err := os.Stat(filepath.Join(root, ".generations", path)); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("one exporter at a time", func(t *testing.T) {
		root := t.TempDir()
		s := open(t, root, Options{})
		if _, err := Open(root, Options{}); err == nil || !strings.Contains(err.Error(), "lock "+root+": another program exports to this directory") {
			t.Error(err)
		}
		s.Close()
		open(t, root, Options{})
	})

	t.Run("FILE-5 after the directory was removed, one exporter writes to it", func(t *testing.T) {
		root := filepath.Join(t.TempDir(), "out")
		first := open(t, root, Options{})
		first.export(resourceList{eds("a")})
		remove := func() {
			t.Helper()
			if err := os.RemoveAll(root); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		second := open(t, root, Options{})
		second.export(resourceList{eds("b")})
		was := second.read()
		if _, err := first.Export(t.Context(), resourceList{eds("c")}.view(t)); !errors.Is(err, ErrBusy) {
			t.Error(err)
		}
		if !maps.Equal(second.read(), was) {
			t.Error("both exporters write to the directory")
		}
		second.Close()
		first.export(resourceList{eds("c")})
		remove()
		first.export(resourceList{eds("c")})
		first.tidy()
	})

	t.Run("the files of a killed exporter are removed", func(t *testing.T) {
		root := exported(t, Options{})
		write(t, filepath.Join(root, ".generations", "2", "lds.yaml"), "half")
		symlink(t, ".generations/2", filepath.Join(root, ".generations", "next"))
		s := open(t, root, Options{})
		s.export(resourceList{eds("b")})
		s.tidy()
	})
}

// swapped replaces the directory root by the export directory from, with one file changed.
func swapped(t *testing.T, root, from, path, content string) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(root, ".generations"), os.DirFS(filepath.Join(from, ".generations"))); err != nil {
		t.Fatal(err)
	}
	symlink(t, ".generations/1", filepath.Join(root, "current"))
	if path != "" {
		write(t, filepath.Join(root, "current", path), content)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestInside(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "config", "x.yaml"), "")
	symlink(t, "config", filepath.Join(root, "link"))
	for path, want := range map[string]bool{
		"config": true, "config/out": true, "config/a/b/c": true, "link": true, "link/out": true, "config/../config/.out": true,
		".": false, "out": false, "config-2": false, "config/../out": false,
	} {
		for _, of := range []string{"config", "link"} {
			if got, err := Inside(filepath.Join(root, path), filepath.Join(root, of)); err != nil || got != want {
				t.Errorf("%s in %s: %v %v", path, of, got, err)
			}
		}
	}
}

func TestMode(t *testing.T) {
	root := filepath.Join(t.TempDir(), "a", "out")
	s := open(t, root, Options{})
	if s.Exposed() {
		t.Error("a new directory is readable by every user")
	}
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, root, Options{})
	s.export(resourceList{secret("s", "x")})
	if info, err := os.Stat(filepath.Join(root, "current", "sds", "s.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if !s.Exposed() {
		t.Error("the directory is readable by every user")
	}
}
