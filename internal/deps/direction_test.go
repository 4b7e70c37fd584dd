// Package deps holds tests of the repository's shape: who imports whom, and
// where effects are allowed.
package deps

import (
	"cmp"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/chancery-xds/chancery/"
	envoy  = "github.com/envoyproxy/go-control-plane/envoy/"
)

// A row says what a package may link of ours, directly or not, and of others.
type row struct {
	ours string // packages it may import; "*": all
	why  string

	std   bool // the standard library and ours only
	light bool // of Envoy's messages, the discovery service's only
}

// The direction of the imports. Everything flows towards the vocabulary. A new
// package needs a row here, save internal ones that link nothing of ours.
var direction = map[string]row{
	"xds":                   {std: true, why: "the vocabulary knows neither gRPC nor generated code"},
	"protocol":              {ours: "xds", std: true, why: "the protocol is a value: request, view and time in, responses out"},
	"protocol/protocoltest": {ours: "xds protocol", std: true, why: "judges any implementation of a half, in memory"},
	"store":                 {ours: "xds internal/guard", light: true, why: "a store holds encoded resources and looks into none"},
	"wire":                  {ours: "xds", light: true, why: "the only place that knows the bytes of requests and responses"},
	"server":                {ours: "xds protocol wire internal/guard internal/pace internal/repeats internal/shares internal/unfinished", light: true, why: "a store comes in as an interface"},
	"lazy":                  {ours: "xds store internal/guard", light: true, why: "fills a store when streams ask, and knows no stream"},
	"rest":                  {ours: "xds protocol wire server internal/guard internal/pace internal/repeats internal/shares internal/unfinished", light: true, why: "polls are answered by a server; messages are found by their descriptors"},
	"internal/unfinished":   {ours: "internal/guard internal/pace internal/shares", light: true, why: "looks at the frames that pass, and knows nothing of what is in them"},
	"internal/shares":       {std: true, why: "counts, and knows nothing of what"},
	"internal/pace":         {std: true, why: "says how long somebody waits, and has no clock"},
	"internal/listen":       {ours: "internal/guard internal/shares", std: true, why: "opens what is listened on, and serves nothing"},
	"internal/guard":        {std: true, why: "catches panics of whoever calls it"},
	"internal/handshakes":   {ours: "internal/repeats internal/guard", light: true, why: "is told by credentials and net/http"},
	"internal/tlsfiles":     {ours: "internal/secret", light: true, why: "reads files when clients connect, and serves nothing"},
	"internal/durable":      {std: true, why: "writes files, and knows nothing of what is in them"},
	"internal/backlog":      {std: true, why: "knows nothing of what is in a line"},
	"internal/repeats":      {ours: "internal/guard", std: true, why: "counts lines, and writes none"},
	"internal/refs":         {ours: "xds", light: true, why: "knows messages by their descriptors only"},
	"internal/secret":       {light: true, why: "knows fields by their descriptors only"},
	"internal/protofile":    {ours: "internal/secret", light: true, why: "reads text, knows no resource types"},
	"internal/source/dir":   {ours: "xds store wire internal/refs internal/protofile internal/secret internal/guard internal/lastgood internal/filelock internal/durable", why: "a source fills a store and knows no stream"},
	"internal/export":       {ours: "xds wire internal/refs internal/protofile internal/secret internal/filelock internal/durable", why: "writes what a view has, wherever that is from"},
	"internal/lastgood":     {ours: "xds internal/filelock internal/durable", light: true, why: "keeps what a source has committed"},
	"internal/metrics":      {ours: "xds protocol wire server store internal/guard internal/pace internal/repeats internal/shares internal/unfinished", light: true, why: "counts what server and store tell"},
	"internal/monitor":      {ours: "internal/listen internal/guard internal/shares", std: true, why: "is given what it serves and checks"},
	"internal/bootstrap":    {ours: "internal/listen internal/guard internal/shares", std: true, why: "writes what clients read, which is text"},
	"cmd/chancery":          {ours: "*", why: "flags and wiring"},
}

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

func TestDirection(t *testing.T) {
	discovery := list(t, "-deps", envoy+"service/discovery/v3")
	for _, path := range list(t, "./...") {
		name := strings.TrimPrefix(path, module)
		t.Run(name, func(t *testing.T) {
			r, ok := direction[name]
			if !ok && !strings.HasPrefix(name, "internal/") {
				t.Fatal("no row in the table: say what the package may import, and why")
			}
			ours := strings.Fields(r.ours)
			for _, dep := range list(t, "-deps", path) {
				short, own := strings.CutPrefix(dep, module)
				switch {
				case dep == path || slices.Equal(ours, []string{"*"}) && own:
				case own && !slices.Contains(ours, short):
					t.Errorf("links %s (%s)", short, cmp.Or(r.why, "it has no row in the table"))
				case !own && r.std && strings.Contains(strings.Split(dep, "/")[0], "."):
					t.Errorf("links %s (%s)", dep, r.why)
				case r.light && strings.HasPrefix(dep, envoy) && !slices.Contains(discovery, dep):
					t.Errorf("links %s: Envoy's messages add 25 MiB and belong to the daemon", dep)
				case strings.HasPrefix(dep, "github.com/envoyproxy/go-control-plane/") && !strings.HasPrefix(dep, envoy):
					t.Errorf("links %s: generated messages are all we take from there", dep)
				}
			}
		})
	}
}
