package dir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/store"
)

const listenerURL = `"@type": type.googleapis.com/envoy.config.listener.v3.Listener`

func tcpListener(name, port string) string {
	return listenerURL + "\nname: " + name + "\naddress: {socket_address: {address: 0.0.0.0, port_value: " + port + "}}\n" +
		"filter_chains: [{filters: [{name: t, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: s, cluster: c}}]}]\n"
}

// checkAll returns the problems of files with their codes, without the directory.
func checkAll(t *testing.T, stdin string, paths []string, ignore []findings.Code, files ...string) string {
	t.Helper()
	root := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(root, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var full []string
	for _, p := range paths {
		if p != Stdin {
			p = filepath.Join(root, p)
		}
		full = append(full, p)
	}
	c := CheckAll(full, strings.NewReader(stdin), Options{}, ignore...)
	var b strings.Builder
	for _, n := range c.Counts {
		b.WriteString(n.Type.String() + "|")
	}
	b.WriteString("\n")
	for _, p := range append(c.Errors, c.Warnings...) {
		b.WriteString(string(p.Code) + " " + strings.ReplaceAll(p.Error(), root+"/", "") + "\n")
	}
	return b.String()
}

func TestCheckAll(t *testing.T) {
	one := []string{"."}
	for _, tt := range []struct {
		name   string
		stdin  string
		paths  []string
		ignore []findings.Code
		files  []string
		want   string
	}{
		{"a field that is wrong", "", one, nil, []string{"a.yaml", clusterURL + "\nname: c\nconnect_timeout: 0s\n"},
			"CDS|\nXDS0301 a.yaml:3:18: connect_timeout: must be more than 0s, not 0s\n"},
		{"in a response", "", one, nil, []string{"a.json", `{"resources": [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "c"},` + "\n" + `{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "d", "connectTimeout": "0s"}]}`},
			"CDS|\nXDS0301 a.json:2:97: resources[1].connect_timeout: must be more than 0s, not 0s\n"},
		{"in a wrapper", "", one, nil, []string{"a.yaml", "\"@type\": type.googleapis.com/envoy.service.discovery.v3.Resource\nname: c\nresource:\n  " + clusterURL + "\n  name: c\n  connect_timeout: 0s\n"},
			"CDS|\nXDS0301 a.yaml:6:20: resource.connect_timeout: must be more than 0s, not 0s\n"},
		{"in text, without a place", "", one, nil, []string{"a.txtpb", "resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: \"c\" connect_timeout { } } }"},
			"CDS|\nXDS0301 a.txtpb: resources[0].connect_timeout: must be more than 0s, not 0s\n"},
		{"two listeners on one socket", "", one, nil, []string{"a.yaml", tcpListener("a", "80") + "---\n" + tcpListener("b", "80"), "b.yaml", tcpListener("c", "81") + "---\n" + strings.Replace(tcpListener("grpc/server?x=0.0.0.0:80", "80"), "stat_prefix: s, ", "", 1), "c.yaml", clusterURL + "\nname: c\n"},
			"CDS|LDS|\nXDS0403 a.yaml:8:27: address.socket_address: LDS \"b\" listens on TCP 0.0.0.0:80, and so does \"a\" at a.yaml:1:1\n"},
		{"two listeners on one IPv6 socket", "", one, nil, []string{"a.yaml", strings.Replace(tcpListener("a", "80"), "0.0.0.0", "'::1'", 1) + "---\n" + strings.Replace(tcpListener("b", "80"), "0.0.0.0", "'0:0:0:0:0:0:0:1'", 1), "c.yaml", clusterURL + "\nname: c\n"},
			"CDS|LDS|\nXDS0403 a.yaml:8:27: address.socket_address: LDS \"b\" listens on TCP [::1]:80, and so does \"a\" at a.yaml:1:1\n"},
		{"two listeners on one socket, of groups that are one view", "", one, nil, []string{
			"a.yaml", tcpListener("a", "80") + "---\n" + tcpListener("moved", "82"), "c.yaml", clusterURL + "\nname: c\n",
			"x/group.yaml", "match: {cluster: x}\ninclude: [default]\n", "x/x.yaml", tcpListener("x", "80") + "---\n" + tcpListener("x2", "82") + "---\n" + tcpListener("moved", "83"),
			"y/group.yaml", "match: {cluster: y}\n", "y/y.yaml", tcpListener("why", "80"),
			"z/group.yaml", "match: {cluster: z}\ninclude: [x]\n", "z/z.yaml", tcpListener("z", "81") + "---\n" + tcpListener("a", "84"), "z/c.yaml", clusterURL + "\nname: c\n",
			"y/c.yaml", clusterURL + "\nname: c\n",
			"w/group.yaml", "match: {cluster: w}\ninclude: [x]\n", "w/w.yaml", tcpListener("w", "90"), // the clash is reported for x already
		},
			"CDS|LDS|\nXDS0403 x/x.yaml:3:27: group x: address.socket_address: LDS \"x\" listens on TCP 0.0.0.0:80, and so does \"a\" at a.yaml:1:1 (nodes of group \"x\" get both)\n"},
		{"a reference with a typo", "", one, nil, []string{"a.yaml", tcpListener("a", "80"), "b.yaml", clusterURL + "\nname: cc\n"},
			"CDS|LDS|\nXDS0201 a.yaml:4:163: warning: filter_chains[0].filters[0].typed_config.cluster: LDS \"a\" refers to CDS \"c\", which no file has (did you mean \"cc\"?)\nXDS0202 b.yaml:1:1: warning: nothing refers to CDS \"cc\"\n"},
		{"next to a mistake, except names in the file with the mistake", "x: c\n", []string{"-", "."}, nil, []string{"a.yaml", tcpListener("a", "80"), "b.yaml", strings.Replace(tcpListener("b", "81"), "cluster: c", "cluster: d", 1)},
			"LDS|\nXDS0106 <stdin>:1:1: neither \"@type\" nor \"resources\" (it must be a resource, a DiscoveryResponse or the protocol's Resource)\nXDS0201 b.yaml:4:163: warning: filter_chains[0].filters[0].typed_config.cluster: LDS \"b\" refers to CDS \"d\", which no file has (requests to it fail, unless the client's bootstrap has it)\n"},
		{"spellings that only some readers accept", "", one, nil, []string{"a.yaml", clusterURL + "\nname: 7\nconnect_timeout: 1m\ntype: eds\nlb_policy: \"1\"\neds_cluster_config: {eds_config: {ads: {}}}\nhealth_checks: {timeout: {seconds: 1}, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}}\nignore_health_on_host_removal: yes\n"},
			`CDS|
XDS0801 a.yaml:2:7: warning: name: int 7 for a string (put it in quotes: Envoy's own reader refuses a bare number or word for a string)
XDS0801 a.yaml:3:18: warning: connect_timeout: the duration "1m" (write seconds: Envoy's own reader accepts only seconds)
XDS0802 a.yaml:4:7: warning: type: "eds" for a value of DiscoveryType (write EDS: readers other than Envoy's need it as it is declared)
XDS0802 a.yaml:5:12: warning: lb_policy: the string "1" for a value of LbPolicy (write it without quotes: readers other than Envoy's need that)
XDS0201 a.yaml:6:21: warning: eds_cluster_config: CDS "7" refers to EDS "7", which no file has (Envoy waits 15 s for endpoints that are missing, at each start)
XDS0802 a.yaml:7:16: warning: health_checks: a mapping for a list (put "- " before it: readers other than Envoy's need a list)
XDS0802 a.yaml:7:26: warning: health_checks[0].timeout: a mapping for a Duration (write "1s": readers other than Envoy's need that)
XDS0802 a.yaml:8:32: warning: ignore_health_on_host_removal: the string "yes" for true or false (write true: readers other than Envoy's need that)
`},
		{"one for a list", "", one, nil, []string{"a.yaml", "resources: {" + clusterURL + ", name: c, connect_timeout: 0s,\n  eds_cluster_config: {eds_config: {ads: {}}},\n  type: EDS}\n"},
			"CDS|\nXDS0301 a.yaml:1:101: resources.connect_timeout: must be more than 0s, not 0s\nXDS0802 a.yaml:1:12: warning: resources: a mapping for a list (put \"- \" before it: readers other than Envoy's need a list)\nXDS0201 a.yaml:2:23: warning: resources.eds_cluster_config: CDS \"c\" refers to EDS \"c\", which no file has (Envoy waits 15 s for endpoints that are missing, at each start)\n"},
		{"types and keys that are misspelled", "", one, nil, []string{"a.yaml", "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Clutser\nname: c\n---\ntype: type.googleapis.com/envoy.config.cluster.v3.Cluster\n---\nresources: []\ntype_url: type.googleapis.com/x\n---\nresources: {a: 1}\ntype_url: CDS\n---\nconfigs: []\n"},
			`
XDS0104 a.yaml:1:10: no message type is known as "envoy.config.cluster.v3.Clutser" (did you mean "type.googleapis.com/envoy.config.cluster.v3.Cluster"?)
XDS0106 a.yaml:4:1: neither "@type" nor "resources" (did you mean "@type" and not "type"?)
XDS0104 a.yaml:7:11: type_url: no message type is known as "x"
XDS0106 a.yaml:9:12: resources: no "@type" (for example "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster)
XDS0104 a.yaml:10:11: type_url: this must be a full type URL, which begins with type.googleapis.com/ (did you mean "type.googleapis.com/envoy.config.cluster.v3.Cluster"?)
XDS0106 a.yaml:12:1: this is a config_dump of Envoy, not a resource (chancery import a.yaml --out DIR converts it)
XDS0802 a.yaml:9:12: warning: resources: a mapping for a list (put "- " before it: readers other than Envoy's need a list)
`},
		{"a bootstrap in stdin", "static_resources: {}\n", []string{"-"}, nil, nil,
			`
XDS0106 <stdin>:1:1: this is an Envoy bootstrap, not a resource (chancery import - --out DIR converts it)
`},
		{"warnings beside what Envoy refuses", "", one, nil, []string{"a.yaml", tcpListener("a", "99999")},
			"LDS|\nXDS0301 a.yaml:3:58: address.socket_address.port_value: must be at most 65535, not 99999\nXDS0201 a.yaml:4:163: warning: filter_chains[0].filters[0].typed_config.cluster: LDS \"a\" refers to CDS \"c\", which no file has (requests to it fail, unless the client's bootstrap has it)\n"},
		{"what is ignored", "", one, []findings.Code{findings.Dangling, findings.InvalidValue}, []string{"a.yaml", tcpListener("a", "99999")}, "LDS|\n"},
		{"nothing refers to clusters, and nothing could", "", one, nil, []string{"b.yaml", clusterURL + "\nname: cc\n"}, "CDS|\n"},
		{"anything may refer to a cluster", "", one, nil, []string{"a.yaml", clusterURL + "\nname: c\n---\n" + clusterURL + "\nname: d\n", "l.yaml", tcpListener("a", "80") + "listener_filters: [{name: x, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua}}]\n"}, "CDS|LDS|\n"},
		{"on demand", "", one, nil, []string{"a.yaml", tcpListener("a", "80"), "b.yaml", clusterURL + "\nname: c\n---\n" + clusterURL + "\nname: d\nx-chancery: {on_demand: true}\n"}, "CDS|LDS|\n"},
		{"files", "", []string{"a.yaml", "sub", "a.yaml"}, nil, []string{"a.yaml", clusterURL + "\nname: c\n", "b.yaml", "nonsense", "sub/c.yaml", tcpListener("a", "80")}, "CDS|LDS|\n"},
		{"a directory and a file in it", "", []string{".", "a.yaml"}, nil, []string{"a.yaml", clusterURL + "\nname: c\n"}, "CDS|\n"},
		{"a file of another name", "", []string{"a.conf"}, nil, []string{"a.conf", clusterURL + "\nname: c\n"},
			"\nXDS0107 a.conf: unknown file type: the name must end in .yaml, .yml, .json, .txtpb, .textproto, .pb_text or .pb\n"},
		{"a file that is not there", "", []string{"a.yaml"}, nil, nil, "\nXDS0107 a.yaml: no such file or directory\n"},
		{"stdin", tcpListener("a", "80"), []string{Stdin}, nil, nil,
			"LDS|\nXDS0201 <stdin>:4:163: warning: filter_chains[0].filters[0].typed_config.cluster: LDS \"a\" refers to CDS \"c\", which no file has (requests to it fail, unless the client's bootstrap has it)\n"},
		{"stdin in JSON, and a file", "{" + clusterURL + ", \"name\": \"c\"}", []string{"a.yaml", Stdin}, nil, []string{"a.yaml", tcpListener("a", "80")}, "CDS|LDS|\n"},
		{"nothing on stdin", "", []string{Stdin}, nil, nil, "\nXDS0108 <stdin>: the file has no resource\nXDS0112 <stdin>: warning: the file is empty; a running server rejects a file that has become empty\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := checkAll(t, tt.stdin, tt.paths, tt.ignore, tt.files...); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
		})
	}
}

// A number can be a secret as a text can.
func TestNoSecretsInViolations(t *testing.T) {
	got := checkAll(t, "", []string{"."}, nil, "a.yaml", "\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\nname: s\nsession_ticket_keys: {keys: [{filename: \"\"}, {inline_string: pa55word}]}\n")
	if strings.Contains(got, "pa55word") || !strings.Contains(got, "XDS0301 a.yaml:3:") {
		t.Error(got)
	}
}

// A server checks what Envoy would refuse only with Options.Validate. A violation is then a mistake.
func TestSourceValidates(t *testing.T) {
	root := t.TempDir()
	write := func(timeout string) {
		if err := os.WriteFile(filepath.Join(root, "a.yaml"), []byte(clusterURL+"\nname: c\nconnect_timeout: "+timeout+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0s")
	if _, err := New(root, store.New(), Options{}).Load(); err != nil {
		t.Errorf("without: %v", err)
	}
	src := New(root, store.New(), Options{Validate: true})
	if _, err := src.Load(); err == nil || !strings.Contains(err.Error(), "a.yaml:3:18: connect_timeout: must be more than 0s") {
		t.Errorf("with: %v", err)
	}
	write("10s")
	if r, err := src.Load(); err != nil || len(r.Counts) != 1 {
		t.Errorf("after the mistake is corrected: %v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(root, "b.yaml"), []byte(tcpListener("a", "80")+"---\n"+tcpListener("b", "80")), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Load(); err == nil || !strings.Contains(err.Error(), "listens on TCP 0.0.0.0:80") {
		t.Errorf("two on a socket: %v", err)
	}
}

// Only resources without known mistakes are tested with a real Envoy.
func TestValidResources(t *testing.T) {
	root := t.TempDir()
	text := clusterURL + "\nname: a\n---\n" + clusterURL + "\nname: b\nconnect_timeout: 0s\n---\n" + clusterURL + "\nname: c\n"
	if err := os.WriteFile(filepath.Join(root, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "b.txtpb"), []byte(`resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "d" connect_timeout { } } }
resources { [type.googleapis.com/envoy.config.cluster.v3.Cluster] { name: "e" } }`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, most := range []int{0, 1} { // reported or only counted
		var names []string
		for _, l := range Check(root, Options{MaxProblems: most}).Valid() {
			names = append(names, l.Name)
		}
		if got := strings.Join(names, " "); got != "a c e" {
			t.Errorf("%s, want a c e", got)
		}
	}
}

// Ignored problems are not counted among the problems beyond the limit.
func TestIgnoredProblemsAreNotCounted(t *testing.T) {
	var refused, odd strings.Builder
	for i := range 150 {
		fmt.Fprintf(&refused, "---\n%s\nname: c%d\nconnect_timeout: 0s\n", clusterURL, i)
		fmt.Fprintf(&odd, "---\n%s\nname: c%d\nconnect_timeout: 1m\n", clusterURL, i)
	}
	for _, tt := range []struct {
		text string
		code findings.Code
		want string
	}{
		{refused.String(), findings.InvalidValue, "150 errors and 0 warnings"},
		{odd.String(), findings.Portability, "0 errors and 150 warnings"},
	} {
		for _, ignore := range [][]findings.Code{nil, {tt.code}} {
			want := tt.want
			if ignore != nil {
				want = "0 errors and 0 warnings"
			}
			c := CheckAll([]string{Stdin}, strings.NewReader(tt.text), Options{MaxFile: 1 << 20}, ignore...)
			if got := fmt.Sprintf("%d errors and %d warnings", findings.Count(c.Errors), findings.Count(c.Warnings)); got != want {
				t.Errorf("%s, ignored %v: %s, want %s", tt.code, ignore, got, want)
			}
		}
	}
}

// Reported dangling references have their places, also if many more are only counted.
func TestManyDanglingReferencesHavePlaces(t *testing.T) {
	var routes strings.Builder
	routes.WriteString("\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: r\nvirtual_hosts:\n")
	for i := range 5 {
		fmt.Fprintf(&routes, "- {name: v%d, domains: [d%d], routes: [{match: {prefix: /}, route: {cluster: c%d}}]}\n", i, i, i)
	}
	c := CheckAll([]string{Stdin}, strings.NewReader(routes.String()), Options{MaxFile: 1 << 20, MaxProblems: 2})
	var lines []int
	for _, p := range c.Warnings {
		lines = append(lines, p.Pos.Line)
	}
	if got := fmt.Sprint(lines, findings.Count(c.Warnings)); got != "[4 5 0] 5" {
		t.Errorf("lines and number: %s", got)
	}
}

// Problems that With adds are counted with the rest, in one last problem.
func TestWithCountsProblemsOnce(t *testing.T) {
	text := clusterURL + "\nname: a\nconnect_timeout: 0s\n---\n" + clusterURL + "\nname: b\nconnect_timeout: 0s\n---\n" + clusterURL + "\nname: c\n"
	c := CheckAll([]string{Stdin}, strings.NewReader(text), Options{MaxFile: 1 << 20, MaxProblems: 1}, findings.NotValidated)
	at := c.Loaded[2].Pos
	c = c.With([]findings.Problem{at.Problem(findings.RefusedByEnvoy, "no")}, []findings.Problem{at.Problem(findings.NotValidated, "not asked")}, c.by.most)
	if len(c.Errors) != 2 || c.Errors[1].Omitted != 2 || findings.Count(c.Errors) != 3 || len(c.Warnings) != 0 {
		t.Errorf("%v, %v", c.Errors, c.Warnings)
	}
}

// Envoy merges the virtual hosts of VHDS into their route configuration, in which a domain may be only once.
func TestDomainsOfVHDS(t *testing.T) {
	host := func(name, domains string) string {
		return "\"@type\": type.googleapis.com/envoy.config.route.v3.VirtualHost\nname: " + name + "\ndomains: [" + domains + "]\n"
	}
	route := func(vhds string) string {
		return "\"@type\": type.googleapis.com/envoy.config.route.v3.RouteConfiguration\nname: local\nvirtual_hosts: [{name: own, domains: [own.example]}]\n" + vhds
	}
	const vhds = "vhds: {config_source: {ads: {}, resource_api_version: V3}}\n"
	const group = "match: {id: x}\n"
	for _, tt := range []struct {
		name  string
		files []string
		want  string // the finding; "": none
	}{
		{"in one file", []string{"a.yaml", host("local/a", "a.example") + "---\n" + host("local/b", "b.example, a.example")}, `a.yaml:7:22: domains[1]: domain "a.example" of "local" is in VHDS "local/b", and also in VHDS "local/a" at a.yaml:1:1`},
		{"in two files", []string{"a.yaml", host("local/a", "a.example"), "b.yaml", host("local/b", "a.example")}, `b.yaml:3:11: domains[0]: domain "a.example" of "local" is in VHDS "local/b", and also in VHDS "local/a" at a.yaml:1:1`},
		{"in another case", []string{"a.yaml", host("local/a", "a.example"), "b.yaml", host("local/b", "A.Example")}, `domain "a.example" of "local" is in VHDS "local/b"`},
		{"two wildcards", []string{"a.yaml", host("local/a", `"*"`), "b.yaml", host("local/b", `"*"`)}, `domain "*" of "local" is in VHDS "local/b"`},
		{"twice in one virtual host", []string{"a.yaml", host("local/a", "a.example, a.example")}, `domain "a.example" of "local" is in VHDS "local/a"`},
		{"in the route configuration, too", []string{"a.yaml", host("local/a", "own.example"), "r.yaml", route(vhds)}, `a.yaml:3:11: domains[0]: domain "own.example" of "local" is in VHDS "local/a", and also in RDS "local" at r.yaml:1:1`},
		{"in a group and the root", []string{"a.yaml", host("local/a", "a.example"), "x/group.yaml", group + "include: [default]\n", "x/b.yaml", host("local/b", "a.example")}, `x/b.yaml:3:11: group x: domains[0]: domain "a.example" of "local" is in VHDS "local/b", and also in VHDS "local/a" at a.yaml:1:1 (nodes of group "x" get both)`},
		{"in groups that no node gets together", []string{"x/group.yaml", group, "x/a.yaml", host("local/a", "a.example"), "y/group.yaml", "match: {id: y}\n", "y/b.yaml", host("local/b", "a.example")}, ""},
		{"a group replaces the resource", []string{"a.yaml", host("local/a", "a.example"), "x/group.yaml", group + "include: [default]\n", "x/a.yaml", host("local/a", "a.example")}, ""},
		{"of two route configurations", []string{"a.yaml", host("local/a", "a.example"), "b.yaml", host("other/b", "a.example")}, ""},
		{"a pattern and a name that it matches", []string{"a.yaml", host("local/a", `"*.example"`), "b.yaml", host("local/b", "a.example")}, ""},
		{"a route configuration without VHDS", []string{"a.yaml", host("local/a", "own.example"), "r.yaml", route("")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := checkAll(t, "", []string{"."}, []findings.Code{findings.Unused, findings.Dangling}, tt.files...)
			if strings.Contains(got, "XDS0401") != (tt.want != "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
