// Package deps holds tests of the repository's shape: who imports whom, who writes to what, and
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

const module = "github.com/chancery-xds/chancery/"

// Modules of generated messages of Envoy's API, which add up to 500 packages, two
// minutes of compiling and 25 MiB. The command has them as descriptors
// (internal/envoyapi), and the library has none. Tests may link them.
var generated = []string{
	"github.com/envoyproxy/", "github.com/cncf/xds/", "cel.dev/expr", "go.opentelemetry.io/proto/", "google.golang.org/genproto/googleapis/api",
}

// Modules that the library links nowhere but in packages that say so: who serves what a
// program has in memory needs none of them.
var heavy = []string{"cel.dev/cel-go", "github.com/antlr4-go/", "go.yaml.in/", "github.com/fsnotify/", "github.com/prometheus/", "github.com/spf13/", "github.com/KimMachineGun/", "github.com/go-jose/", "go.etcd.io/", "go.uber.org/zap", "go.uber.org/multierr", "github.com/coreos/", "github.com/golang/protobuf/", "github.com/grpc-ecosystem/"}

// CEL has its syntax tree as generated messages. They are small, and Envoy's are not among them.
const ofCEL = "cel.dev/expr google.golang.org/genproto/googleapis/api/expr/"

// OpenTelemetry has its own messages, which are few, and uses an annotation of gRPC's gateway.
const ofOTLP = "go.opentelemetry.io/proto/otlp google.golang.org/genproto/googleapis/api/httpbody google.golang.org/genproto/googleapis/api"

// Messages of etcd have annotations for its gateway.
const ofEtcd = "google.golang.org/genproto/googleapis/api"

// A row says what a package may link of ours, directly or not, and of others.
type row struct {
	ours string // packages it may import; "*": all
	why  string

	std       bool   // the standard library and ours only
	heavy     string // of those modules, the ones that it may link
	generated string // the same of generated messages
}

// The direction of the imports. Everything flows towards the vocabulary. A new
// package needs a row here, save internal ones that link nothing of ours.
var direction = map[string]row{
	"xds":                        {std: true, why: "the vocabulary knows neither gRPC nor generated code"},
	"protocol":                   {ours: "xds", std: true, why: "the protocol is a value: request, view and time in, responses out"},
	"protocol/protocoltest":      {ours: "xds protocol", std: true, why: "judges any implementation of a half, in memory"},
	"store":                      {ours: "xds internal/guard internal/derived", why: "a store holds encoded resources and looks into none"},
	"xds/xdstest":                {ours: "xds protocol wire server internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "tests a server, by what a client knows of the bytes; it is linked by tests alone"},
	"wire":                       {ours: "xds", why: "the only place that knows the bytes of requests and responses"},
	"server":                     {ours: "xds protocol wire internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "a store comes in as an interface"},
	"client":                     {ours: "xds protocol wire internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", why: "the client half with its streams; who links it links no server"},
	"client/bootstrap":           {ours: "xds protocol wire client client/rest client/file findings internal/files internal/envoyapi internal/protofile internal/tlsfiles internal/secret internal/encoded internal/printable internal/guard internal/lastgood internal/durable internal/filelock internal/shorten", heavy: "go.yaml.in/ github.com/fsnotify/", why: "reads what a client is started with, and connects to nobody"},
	"client/rest":                {ours: "xds protocol wire client internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", why: "polls a server; messages are found by their descriptors"},
	"client/file":                {ours: "xds protocol wire client findings internal/files internal/envoyapi internal/protofile internal/secret internal/printable internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", heavy: "go.yaml.in/ github.com/fsnotify/", why: "reads a file; messages are found by their descriptors"},
	"client/metrics":             {ours: "xds protocol wire client internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", heavy: "github.com/prometheus/", why: "counts what a client tells, and is asked for nothing else"},
	"client/csds":                {ours: "xds protocol wire client internal/csds internal/adminapi internal/envoyapi internal/secret internal/encoded internal/guard internal/shorten internal/lastgood internal/durable internal/filelock", why: "tells of clients, and links no server"},
	"client/tree":                {ours: "xds protocol wire client refs internal/refs internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", why: "watches what resources refer to, by their references"},
	"lazy":                       {ours: "xds store internal/guard internal/derived", why: "fills a store when streams ask, and knows no stream"},
	"rest":                       {ours: "xds protocol wire server internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "polls are answered by a server; messages are found by their descriptors"},
	"internal/adminapi":          {std: true, why: "a vocabulary, and the client that speaks it"},
	"internal/unfinished":        {ours: "internal/guard internal/pace internal/shares", why: "looks at the frames that pass, and knows nothing of what is in them"},
	"internal/shares":            {std: true, why: "counts, and knows nothing of what"},
	"internal/derived":           {ours: "xds", std: true, why: "remembers tables, and makes none"},
	"internal/shorten":           {std: true, why: "cuts text, and knows nothing of it"},
	"internal/pace":              {std: true, why: "says how long somebody waits, and has no clock"},
	"internal/listen":            {ours: "internal/guard internal/shares", std: true, why: "opens what is listened on, and serves nothing"},
	"internal/guard":             {std: true, why: "catches panics of whoever calls it"},
	"internal/identity":          {ours: "access xds findings internal/protofile internal/settings internal/nodemeta internal/envoyapi internal/secret internal/encoded internal/printable internal/derived", why: "says who somebody is, not what they may do"},
	"internal/handshakes":        {ours: "internal/repeats internal/guard", why: "is told by credentials and net/http"},
	"internal/tlsfiles":          {ours: "internal/secret internal/encoded", why: "reads files when clients connect, and serves nothing"},
	"internal/encoded":           {why: "goes through bytes, and knows nothing of what they mean"},
	"internal/durable":           {std: true, why: "writes files, and knows nothing of what is in them"},
	"internal/backlog":           {std: true, why: "knows nothing of what is in a line"},
	"internal/repeats":           {ours: "internal/guard", std: true, why: "counts lines, and writes none"},
	"refs":                       {ours: "xds internal/refs", why: "what embedders need of internal/refs"},
	"internal/refs":              {ours: "xds", why: "knows messages by their descriptors only"},
	"internal/secret":            {ours: "internal/encoded", why: "knows fields by their descriptors only"},
	"internal/envoyapi":          {ours: "internal/encoded", why: "has descriptors, and looks into no message"},
	"internal/envoyapi/apitest":  {ours: "internal/envoyapi internal/encoded", why: "helps tests"},
	"internal/tabletest":         {ours: "xds", why: "helps tests"},
	"internal/watchtest":         {ours: "xds", why: "helps tests"},
	"internal/secret/secrettest": {ours: "internal/envoyapi internal/encoded", why: "helps tests"},
	"findings":                   {ours: "internal/printable", std: true, why: "a table, of which all else is made"},
	"internal/validate":          {ours: "findings internal/secret internal/encoded internal/printable", why: "knows messages by their descriptors only, and no resources"},
	"internal/report":            {ours: "internal/envoyapi findings internal/protofile internal/secret internal/encoded internal/printable", why: "writes what was found, and looks for nothing"},
	"internal/askenvoy":          {ours: "xds internal/envoyapi internal/encoded", why: "is given resources, and runs an Envoy"},
	"internal/protofile":         {ours: "internal/envoyapi findings internal/secret internal/encoded internal/printable", why: "reads text, knows no resource types"},
	"internal/settings":          {ours: "internal/envoyapi findings internal/protofile internal/secret internal/encoded internal/printable", why: "reads keys, and knows no file"},
	"groups":                     {ours: "xds findings internal/protofile internal/settings internal/nodemeta internal/envoyapi internal/secret internal/encoded internal/printable", heavy: "go.yaml.in/", why: "says which groups a node gets, and holds nothing of them"},
	"groups/cel":                 {ours: "xds findings groups internal/protofile internal/settings internal/nodemeta internal/envoyapi internal/secret internal/encoded internal/printable", heavy: "cel.dev/cel-go github.com/antlr4-go/ go.yaml.in/", generated: ofCEL, why: "rules in CEL, for who wants them"},
	"access":                     {ours: "xds findings internal/protofile internal/settings internal/nodemeta internal/envoyapi internal/secret internal/encoded internal/printable internal/derived", heavy: "go.yaml.in/", why: "says who sees what; a source and a server come in as interfaces"},
	"source/dir":                 {ours: "xds store wire internal/envoyapi findings groups refs internal/refs internal/protofile internal/settings internal/nodemeta internal/validate internal/files internal/secret internal/guard internal/lastgood internal/filelock internal/durable internal/encoded internal/printable internal/derived", heavy: "go.yaml.in/ github.com/fsnotify/", why: "a source fills a store and knows no stream"},
	"endpoints":                  {ours: "xds store internal/encoded internal/guard internal/derived internal/durable internal/filelock", why: "keeps what is registered and fills a store with it; it knows no stream"},
	"source/dns":                 {why: "asks servers of the DNS, and knows no cluster"},
	"internal/registrar":         {ours: "internal/adminapi", std: true, why: "asks a server, and knows nothing of what is registered"},
	"endpoints/etcd":             {ours: "xds store endpoints internal/encoded internal/guard internal/derived internal/durable internal/filelock", heavy: "go.etcd.io/ go.uber.org/zap go.uber.org/multierr github.com/coreos/ github.com/golang/protobuf/ github.com/grpc-ecosystem/", generated: ofEtcd, why: "keeps registrations in an etcd, and knows nothing of what is in them"},
	"revisions":                  {ours: "xds internal/encoded", why: "keeps configurations in an engine, which comes in as an interface"},
	"revisions/file":             {ours: "xds revisions internal/encoded internal/durable internal/filelock internal/files", heavy: "github.com/fsnotify/", why: "keeps values in a directory, and knows nothing of what is in them"},
	"revisions/etcd":             {ours: "xds revisions internal/encoded", heavy: "go.etcd.io/ go.uber.org/zap go.uber.org/multierr github.com/coreos/ github.com/golang/protobuf/ github.com/grpc-ecosystem/", generated: ofEtcd, why: "the only package that knows an etcd"},
	"revisions/enginetest":       {ours: "xds revisions internal/encoded", why: "judges any engine of revisions; it is linked by tests alone"},
	"source/repository":          {ours: "xds store revisions findings groups refs internal/refs internal/envoyapi internal/protofile internal/settings internal/nodemeta internal/secret internal/guard internal/encoded internal/printable internal/derived", heavy: "go.yaml.in/", why: "a source fills a store and knows no stream; an engine comes in as an interface"},
	"internal/applied":           {ours: "xds store wire revisions source/dir findings groups refs internal/refs internal/envoyapi internal/protofile internal/settings internal/nodemeta internal/validate internal/files internal/secret internal/guard internal/lastgood internal/filelock internal/durable internal/encoded internal/printable internal/derived", why: "reads files as a source does, and serves nothing"},
	"internal/feed":              {ours: "internal/ledger internal/adminapi internal/applied xds store wire revisions source/dir findings groups refs internal/refs internal/envoyapi internal/protofile internal/settings internal/nodemeta internal/validate internal/files internal/secret internal/guard internal/lastgood internal/filelock internal/durable internal/encoded internal/printable internal/derived", heavy: "go.yaml.in/ github.com/fsnotify/", why: "reads a directory, and writes to an engine that it is given"},
	"internal/ledger":            {ours: "xds revisions internal/adminapi internal/encoded", why: "asks a repository that it is given, and opens none"},
	"internal/export":            {ours: "xds wire internal/envoyapi findings internal/refs internal/protofile internal/secret internal/filelock internal/durable internal/encoded internal/printable", why: "writes what a view has, wherever that is from"},
	"internal/importer":          {ours: "xds internal/envoyapi findings internal/refs internal/protofile internal/secret internal/durable internal/encoded internal/printable", why: "reads what Envoy has, and serves nothing"},
	"internal/lastgood":          {ours: "xds internal/filelock internal/durable internal/encoded", why: "keeps what a source has committed"},
	"metrics":                    {ours: "xds protocol wire server store internal/series internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished internal/derived", heavy: "github.com/prometheus/", why: "counts what server and store tell, and is asked for nothing else"},
	"internal/status":            {ours: "xds protocol wire server internal/adminapi internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "folds what streams tell, and asks nobody"},
	"internal/series":            {why: "shapes of numbers, and none of them"},
	"internal/process":           {ours: "xds protocol wire server store metrics internal/series internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished internal/derived", why: "counts what the program tells"},
	"internal/admin":             {ours: "xds protocol wire server store endpoints proto/chancery/endpoints/v1 revisions internal/ledger internal/encoded internal/durable internal/filelock internal/derived internal/adminapi internal/status internal/listen internal/printable internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "asks the daemon by small interfaces, and knows no files"},
	"internal/rollout":           {ours: "xds revisions internal/ledger internal/adminapi groups findings internal/envoyapi internal/protofile internal/settings internal/nodemeta internal/secret internal/encoded internal/printable internal/guard", heavy: "go.yaml.in/", why: "decides how a rollout goes on, by what is in the store; how clients stand comes in as a function"},
	"internal/replicas":          {ours: "xds revisions internal/adminapi internal/listen internal/tlsfiles internal/guard internal/shares internal/secret internal/encoded", why: "finds the servers of a store and asks them, and knows nothing of what they say"},
	"internal/csds":              {ours: "xds internal/adminapi internal/envoyapi internal/secret internal/encoded internal/guard internal/shorten", why: "knows messages by their descriptors, and clients by what it is told"},
	"internal/csds/live":         {ours: "xds protocol wire server internal/adminapi internal/status internal/csds internal/envoyapi internal/secret internal/encoded internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "knows clients by the streams of a server"},
	"internal/explain":           {ours: "xds protocol wire store server findings groups refs source/dir internal/files internal/adminapi internal/envoyapi internal/refs internal/protofile internal/settings internal/nodemeta internal/validate internal/quarantine internal/secret internal/guard internal/lastgood internal/filelock internal/durable internal/encoded internal/pace internal/repeats internal/shares internal/shorten internal/unfinished internal/printable internal/derived", heavy: "go.yaml.in/ github.com/fsnotify/", why: "asks streams, store and source, and remembers nothing"},
	"internal/monitor":           {ours: "internal/listen internal/guard internal/shares", std: true, why: "is given what it serves and checks"},
	"internal/bootstrap":         {ours: "internal/listen internal/guard internal/shares", std: true, why: "writes what clients read, which is text"},
	"internal/relay":             {ours: "xds protocol wire client store internal/derived internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", why: "ties a client to a store, and knows no server"},
	"internal/fetch":             {ours: "xds protocol wire client internal/guard internal/lastgood internal/durable internal/filelock internal/encoded internal/shorten", why: "asks whoever a transport reaches; printing and dialing is for others"},
	"internal/compare":           {ours: "xds internal/envoyapi internal/secret internal/encoded", why: "is given resources, and says in what they differ"},
	"internal/quarantine":        {ours: "xds protocol wire server internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished", why: "shows a stream another view; the core knows nothing of it"},
	"internal/traces":            {ours: "xds protocol wire server store internal/guard internal/pace internal/repeats internal/shares internal/shorten internal/unfinished internal/derived", generated: ofOTLP, why: "is told what happens, and sends it"},
	"cmd/chancery":               {ours: "*", generated: ofCEL + " " + ofOTLP, why: "flags and wiring"},

	"proto/chancery/endpoints/v1": {why: "messages for clients, generated; they link nothing else of ours"},
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
				case dep != path && short == "xds/xdstest":
					t.Errorf("links %s, which is for tests", dep)
				case dep == path || slices.Equal(ours, []string{"*"}) && own:
				case own && !slices.Contains(ours, short):
					t.Errorf("links %s (%s)", short, cmp.Or(r.why, "it has no row in the table"))
				case !own && r.std && strings.Contains(strings.Split(dep, "/")[0], "."):
					t.Errorf("links %s (%s)", dep, r.why)
				case !strings.HasPrefix(name, "internal/") && !strings.HasPrefix(name, "cmd/") && slices.ContainsFunc(heavy, func(m string) bool {
					return strings.HasPrefix(dep, m) && !slices.Contains(strings.Fields(r.heavy), m)
				}):
					t.Errorf("links %s, which who embeds it would not expect", dep)
				case slices.ContainsFunc(generated, func(m string) bool { return strings.HasPrefix(dep, m) }) &&
					!slices.ContainsFunc(strings.Fields(r.generated), func(m string) bool { return strings.HasPrefix(dep, m) }):
					t.Errorf("links %s: messages are known by their descriptors", dep)
				}
			}
		})
	}
}
