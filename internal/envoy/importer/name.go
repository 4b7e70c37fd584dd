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

// nameListeners names the listeners that have no name, which a bootstrap allows. The name comes from
// the port, so it does not depend on other listeners.
func (im *importer) nameListeners() {
	used := usedNames{}
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
		take(e.node, im.descriptor(xds.Listener), "name") // remove an empty name
		lead(e.node, "name", text(e.name))
		e.note("had no name")
	}
}

// listenerName returns a name made from the listener's address, and a longer one in case the first is
// used.
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
		return short, short + "_" + fileNameOf(field(a, "address").String())
	case which.Name() == "pipe":
		p := field(sub(address, "pipe"), "path").String()
		return "listener_" + fileNameOf(path.Base(p)), "listener_" + fileNameOf(strings.Trim(p, "/"))
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

// fileNameOf replaces the characters of a name that are unusual in a file name.
func fileNameOf(s string) string { return odd.ReplaceAllString(s, "_") }

// free returns the first unused name: name itself, or name with a number appended.
func free(name string, used func(string) bool) string {
	for n, candidate := 2, name; ; n++ {
		if !used(candidate) {
			return candidate
		}
		candidate = fmt.Sprintf("%s-%d", name, n)
	}
}

// usedNames holds the used names, each with the number to try next. So many equal names do not each try
// all numbers from the start.
type usedNames map[string]int

// free returns an unused name and marks it as used: name itself, or name with a number appended. Two
// names are equal if their keys are.
func (t usedNames) free(name string, key func(string) string) string {
	n, candidate := max(2, t[key(name)]), name
	for ; t[key(candidate)] != 0; n++ {
		candidate = fmt.Sprintf("%s-%d", name, n)
	}
	t[key(candidate)] = 2
	t[key(name)] = n
	return candidate
}

// folders are the folders of the resource files, by the short name of the type.
var folders = map[string]string{
	"CDS": "clusters", "EDS": "endpoints", "LEDS": "locality_endpoints", "SDS": "secrets", "ECDS": "extensions", "LDS": "listeners",
	"SRDS": "scopes", "RDS": "routes", "VHDS": "virtual_hosts", "RTDS": "runtime",
}

// kinds are the readable names of resource types, by the short name of the type.
var kinds = map[string]string{
	"CDS": "cluster", "EDS": "endpoints", "SDS": "secret", "ECDS": "extension config", "LDS": "listener", "SRDS": "scoped routes", "RDS": "routes",
	"VHDS": "virtual host", "RTDS": "runtime",
}

// Kind returns a readable name of a resource type.
func Kind(t *xds.Type) string {
	if k := kinds[t.Short]; k != "" {
		return k
	}
	return t.String()
}

// maxFileName limits the length of a file name in bytes, without an appended number.
const maxFileName = 120

// files assigns readable file names to resources. They stay unique on file systems that ignore case.
type files struct{ usedNames }

func (f files) assign(t *xds.Type, name string) string {
	folder := folders[t.Short]
	if folder == "" {
		folder = strings.ToLower(fileNameOf(t.URL[strings.LastIndexByte(t.URL, '.')+1:]))
	}
	base := fileNameOf(name)
	if len(base) > maxFileName {
		base = base[:maxFileName]
	}
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") { // the directory source ignores such files
		base = "x" + base
	}
	return f.free(folder+"/"+base, strings.ToLower) + ".yaml"
}

// isPlain reports whether every YAML reader reads the unquoted text as that string.
func isPlain(s string) bool { return bare.MatchString(s) && !words.MatchString(s) }

var (
	bare  = regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./-]*|[0-9]+(\.[0-9]+){3}|[0-9]+(\.[0-9]+)?s)$`)
	words = regexp.MustCompile(`^(?i:y|yes|n|no|on|off|true|false|null|nan|inf|infinity)$`)
)

// fieldOf returns the proto name of the field that a key names.
func fieldOf(md protoreflect.MessageDescriptor, key string) string {
	if fd := protoyaml.Field(md, key); fd != nil {
		return string(fd.Name())
	}
	return key
}
