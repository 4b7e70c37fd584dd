package importer

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
	"github.com/chancery-xds/chancery/xds"
)

// nameListeners gives a name to listeners that have none, which in a bootstrap they need
// not. It is of the port, so that it stays the same when others come and go.
func (im *importer) nameListeners() {
	used := taken{}
	for _, e := range im.entries {
		if e.typ.Is(xds.Listener) && e.name != "" {
			used[e.name] = 2
		}
	}
	for _, e := range im.entries {
		if !e.typ.Is(xds.Listener) || e.name != "" {
			continue
		}
		short, long := listenerName(e.message().ProtoReflect())
		e.name = short
		if used[e.name] != 0 {
			e.name = long
		}
		e.name = used.free(e.name, strings.Clone)
		take(e.node, im.descriptor(xds.Listener), "name") // an empty one
		lead(e.node, "name", text(e.name))
		e.note("had no name")
	}
}

// listenerName returns a name of where a listener listens, and a longer one.
func listenerName(m protoreflect.Message) (short, long string) {
	address := sub(m, "address")
	switch which := address.WhichOneof(address.Descriptor().Oneofs().ByName("address")); {
	case which == nil:
		return "listener", "listener"
	case which.Name() == "socket_address":
		a := sub(address, "socket_address")
		port := field(a, "port_value").String()
		if named := field(a, "named_port").String(); named != "" {
			port = named
		}
		short = "listener_" + port
		if field(a, "protocol").Enum() == 1 { // UDP
			short += "_udp"
		}
		return short, short + "_" + plainer(field(a, "address").String())
	case which.Name() == "pipe":
		p := field(sub(address, "pipe"), "path").String()
		return "listener_" + plainer(path.Base(p)), "listener_" + plainer(strings.Trim(p, "/"))
	}
	return "listener", "listener"
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func sub(m protoreflect.Message, name protoreflect.Name) protoreflect.Message {
	return field(m, name).Message()
}

var odd = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// plainer returns a text with what is odd in a file's name replaced.
func plainer(s string) string { return odd.ReplaceAllString(s, "_") }

// free returns a name that is not used: itself, or with a number behind it.
func free(name string, used func(string) bool) string {
	for n, candidate := 2, name; ; n++ {
		if !used(candidate) {
			return candidate
		}
		candidate = fmt.Sprintf("%s-%d", name, n)
	}
}

// taken are names that are used, each with the number that is tried next behind it: of
// many that would be called the same none tries all of them.
type taken map[string]int

// free returns a name that is not used, and takes it: itself, or with a number behind it.
// Names are one if their keys are.
func (t taken) free(name string, key func(string) string) string {
	n, candidate := max(2, t[key(name)]), name
	for ; t[key(candidate)] != 0; n++ {
		candidate = fmt.Sprintf("%s-%d", name, n)
	}
	t[key(candidate)] = 2
	t[key(name)] = n
	return candidate
}

// folders are where resources go, by the short name of their type.
var folders = map[string]string{
	"CDS": "clusters", "EDS": "endpoints", "LEDS": "locality_endpoints", "SDS": "secrets", "ECDS": "extensions", "LDS": "listeners",
	"SRDS": "scopes", "RDS": "routes", "VHDS": "virtual_hosts", "RTDS": "runtime",
}

// kinds name resources for people, by the short name of their type.
var kinds = map[string]string{
	"CDS": "cluster", "EDS": "endpoints", "SDS": "secret", "ECDS": "extension config", "LDS": "listener", "SRDS": "scoped routes", "RDS": "routes",
	"VHDS": "virtual host", "RTDS": "runtime",
}

// Kind names a type for people.
func Kind(t *xds.Type) string {
	if k := kinds[t.Short]; k != "" {
		return k
	}
	return t.String()
}

// Names of files are as long as this at most, without what is put behind them.
const longest = 120

// files says where the files of resources are: of a name that people read, and of which
// no two are one where upper and lower case are.
type files struct{ taken }

func (f files) of(t *xds.Type, name string) string {
	folder := folders[t.Short]
	if folder == "" {
		folder = strings.ToLower(plainer(t.URL[strings.LastIndexByte(t.URL, '.')+1:]))
	}
	base := plainer(name)
	if len(base) > longest {
		base = base[:longest]
	}
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") { // which is passed over
		base = "x" + base
	}
	return f.free(folder+"/"+base, strings.ToLower) + ".yaml"
}

// isPlain reports whether every reader takes a text without quotes as that text.
func isPlain(s string) bool { return bare.MatchString(s) && !words.MatchString(s) }

var (
	bare  = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./-]*|[0-9]+(\.[0-9]+){3}|[0-9]+(\.[0-9]+)?s)$`)
	words = regexp.MustCompile(`^(?i:y|yes|n|no|on|off|true|false|null|nan|inf|infinity)$`)
)

// fieldOf returns the field that a key names.
func fieldOf(md protoreflect.MessageDescriptor, key string) string {
	if fd := protoyaml.Field(md, key); fd != nil {
		return string(fd.Name())
	}
	return key
}
