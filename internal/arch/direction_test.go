// Package arch tests the shape of the repository: which package imports which, and where goroutines, clocks,
// timers and locks are allowed.
package arch

import (
	"errors"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/chancery-xds/chancery/"

// A layer is a row of packages. A package imports packages of its own layer and of the layers before it.
type layer struct {
	name, why string
	packages  string // patterns of path.Match
}

// docs/architecture.md has a picture of these layers. Each new package must be added here.
var layers = []layer{
	{"leaves", "solve one problem each, without xDS",
		"internal/panics internal/faults internal/text/jsonscan internal/text/glob internal/text internal/disk internal/disk/watch internal/protoscan internal/promx internal/limit/* internal/logs/* internal/listen internal/listen/handshakes internal/listen/reloadsocket internal/endpoints/dns"},
	{"vocabulary", "has the types of xDS and of the admin API, and the client of the admin API",
		"xds findings internal/tablecache internal/admin/api internal/admin/client proto/*/*/*"},
	{"core", "turns bytes into requests, and requests into responses",
		"protocol protocol/internal/* wire"},
	{"envoy", "reads messages through the descriptors of Envoy; serves and watches nothing",
		"refs internal/envoy internal/envoy/* internal/admin/csds internal/yamlkeys internal/check/* internal/auth/certs internal/disk/lastgood"},
	{"server and client", "move messages: the store, the streams, the client library",
		"store server lazy rest metrics client client/*"},
	{"selection", "decides which client gets which resources",
		"groups groups/cel internal/auth/access internal/auth/identity internal/quarantine internal/quarantine/evidence"},
	{"sources", "fill a store: a directory, a revision store, registered endpoints, another xDS server",
		"source/dir internal/cluster/* internal/cluster/revisions/* internal/endpoints internal/endpoints/* internal/relay internal/relay/fetch"},
	{"operators", "shows operators the state of clients and sources",
		"web internal/admin internal/admin/clients internal/admin/roles internal/admin/session internal/admin/oidc internal/admin/explain internal/admin/csds/live internal/admin/wiring admin"},
	{"commands", "talk to a server over its admin API, or work on files",
		"internal/cli internal/cli/*"},
	{"daemon", "wires the parts of serve together",
		"internal/daemon internal/daemon/*"},
	{"programs", "are what a user starts",
		"cmd/* tools/*"},
}

// testkits are imported by tests only, and may import anything.
const testkits = "internal/testkit/* xds/xdstest protocol/protocoltest protocol/transcripts internal/cluster/revisions/enginetest internal/arch"

// apart lists pairs of packages. The first must not link the second, although their layers would allow it.
var apart = []struct{ from, to, why string }{
	{"client client/*", "server store", "a program that embeds the client does not link the server"},
	{"xds protocol protocol/internal/* wire refs store server lazy rest metrics findings groups groups/cel source/dir client client/*", "admin web internal/admin internal/admin/clients internal/admin/explain internal/admin/wiring", "a program without the admin API does not link it or its page"},
	{"server rest", "store", "they use a store through an interface"},
	{"internal/cli internal/cli/*", "internal/daemon internal/daemon/* internal/admin", "commands use the daemon only through its admin API"},
	{"internal/daemon/*", "internal/daemon", "parts of the daemon do not depend on the whole"},
	{"source/dir", "internal/cluster/* internal/admin", "a source uses a store, but no stream"},
	{"internal/relay", "server", "a relay fills a store"},
}

// modules lists other modules that only some packages may link. The first column matches packages of this
// repository. A package without a row may link none of the modules.
var modules = []struct{ packages, modules, why string }{
	{"cmd/* internal/* internal/*/* internal/*/*/* tools/*", "cel.dev/cel-go github.com/antlr4-go/ go.yaml.in/ github.com/fsnotify/ github.com/prometheus/ github.com/spf13/ github.com/KimMachineGun/ github.com/go-jose/ go.etcd.io/ go.uber.org/zap go.uber.org/multierr github.com/coreos/ golang.org/x/oauth2 github.com/golang/protobuf/ github.com/grpc-ecosystem/", "programs may have many dependencies"},
	{"metrics client/metrics", "github.com/prometheus/", "count for Prometheus"},
	{"groups", "go.yaml.in/", "read group.yaml"},
	{"groups/cel", "go.yaml.in/ cel.dev/cel-go github.com/antlr4-go/", "evaluates rules in CEL"},
	{"source/dir client/bootstrap client/file admin", "go.yaml.in/ github.com/fsnotify/", "read files that change"},
}

// heavy are modules that must not reach a program that embeds the library.
var heavy = strings.Fields(modules[0].modules)

// generated are modules with the generated messages of the API of Envoy: 500 packages, two minutes of compiling
// and 25 MiB. The command has them as descriptors (internal/envoy), and the library does not need them. Tests
// may link them.
var generated = []string{
	"github.com/envoyproxy/", "github.com/cncf/xds/", "cel.dev/expr", "go.opentelemetry.io/proto/", "google.golang.org/genproto/googleapis/api",
}

// someGenerated lists packages that may link some generated messages, because these are small.
var someGenerated = []struct{ packages, modules, why string }{
	{"groups/cel", "cel.dev/expr google.golang.org/genproto/googleapis/api/expr/", "the syntax tree of CEL"},
	{"internal/cluster/etcdkv internal/cluster/revisions/etcd internal/endpoints/etcd", "google.golang.org/genproto/googleapis/api", "etcd's annotations for its gateway"},
	{"internal/daemon/trace", "go.opentelemetry.io/proto/otlp google.golang.org/genproto/googleapis/api", "OpenTelemetry's own messages"},
	{"cmd/* internal/cli internal/cli/* internal/daemon", "cel.dev/expr google.golang.org/genproto/googleapis/api go.opentelemetry.io/proto/otlp", "all of the above"},
}

// stdOnly are packages that link only the standard library and this repository.
const stdOnly = "xds web protocol protocol/internal/* protocol/protocoltest protocol/transcripts findings internal/admin/api internal/admin/client internal/limit/rate internal/limit/fair internal/tablecache internal/text internal/text/jsonscan internal/text/glob internal/panics internal/faults internal/listen internal/disk internal/logs/* internal/daemon/health internal/envoy/bootstrap internal/endpoints/register"

func matches(patterns, pkg string) bool {
	return slices.ContainsFunc(strings.Fields(patterns), func(pattern string) bool {
		ok, err := path.Match(pattern, pkg)
		return ok && err == nil
	})
}

func layerOf(pkg string) int {
	return slices.IndexFunc(layers, func(l layer) bool { return matches(l.packages, pkg) })
}

func hasPrefix(pkg string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(pkg, m) })
}

// list runs go list at the root of the repository and returns the words it prints.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Fatalf("go list %s: %s", strings.Join(args, " "), e.Stderr)
		}
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// packages returns the Imports or the Deps of each package of this repository.
func packages(t *testing.T, field string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	var pkg string
	for _, word := range list(t, "-f", "package {{.ImportPath}} {{join ."+field+` " "}}`, "./...") {
		switch {
		case word == "package":
			pkg = ""
		case pkg == "":
			pkg = strings.TrimPrefix(word, module)
			all[pkg] = nil
		default:
			all[pkg] = append(all[pkg], word)
		}
	}
	return all
}

func TestImportsPointDown(t *testing.T) {
	for pkg, imports := range packages(t, "Imports") {
		if matches(testkits, pkg) {
			continue
		}
		at := layerOf(pkg)
		if at < 0 {
			t.Errorf("%s is in no layer: add it to layers", pkg)
			continue
		}
		for _, imported := range imports {
			name, ours := strings.CutPrefix(imported, module)
			switch {
			case !ours:
			case matches(testkits, name):
				t.Errorf("%s imports the test kit %s", pkg, name)
			case strings.HasPrefix(name, "internal/daemon") && !strings.HasPrefix(pkg, "internal/daemon") && !strings.HasPrefix(pkg, "cmd/"):
				t.Errorf("%s imports %s: only cmd may", pkg, name)
			case layerOf(name) > at:
				t.Errorf("%s (%s) imports %s (%s), a layer above: %s %s", pkg, layers[at].name, name, layers[layerOf(name)].name, layers[at].name, layers[at].why)
			}
		}
	}
}

func TestPackagesLinkWhatTheyMay(t *testing.T) {
	for pkg, deps := range packages(t, "Deps") {
		if matches(testkits, pkg) && pkg != "protocol/protocoltest" && pkg != "protocol/transcripts" || strings.HasPrefix(pkg, "tools/") {
			continue
		}
		var mayHeavy, mayGenerated []string
		for _, row := range modules {
			if matches(row.packages, pkg) {
				mayHeavy = append(mayHeavy, strings.Fields(row.modules)...)
			}
		}
		for _, row := range someGenerated {
			if matches(row.packages, pkg) {
				mayGenerated = append(mayGenerated, strings.Fields(row.modules)...)
			}
		}
		for _, dep := range deps {
			name, ours := strings.CutPrefix(dep, module)
			if ours {
				for _, a := range apart {
					if matches(a.from, pkg) && matches(a.to, name) && !matches(a.from, name) {
						t.Errorf("%s links %s: %s", pkg, name, a.why)
					}
				}
				continue
			}
			switch {
			case matches(stdOnly, pkg) && strings.Contains(strings.Split(dep, "/")[0], "."):
				t.Errorf("%s links %s, but may link only the standard library", pkg, dep)
			case hasPrefix(dep, heavy) && !hasPrefix(dep, mayHeavy):
				t.Errorf("%s links %s, which must not reach a program that embeds it", pkg, dep)
			case hasPrefix(dep, generated) && !hasPrefix(dep, mayGenerated):
				t.Errorf("%s links %s: use the descriptors of the messages", pkg, dep)
			}
		}
	}
}
