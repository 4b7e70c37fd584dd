package export

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// maxFileName is the maximum length of a file name, without the ending of the format. Some common file
// systems accept only 143 bytes.
const maxFileName = 120

// fileName returns the file name of a resource. Different resource names have different file names,
// even on file systems that ignore case.
//
// Lower-case ASCII letters, digits and "-", "_", "." stay, except a leading "_" or ".", which would
// hide the file. Every other byte becomes "%" and two hexadecimal digits. If the result is too long, it
// is cut and gets "~" and 32 digits of the name's SHA-256.
func fileName(name string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', i > 0 && (c == '_' || c == '.'):
			b.WriteByte(c)
		default:
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	s := b.String()
	if len(s) <= maxFileName {
		return s
	}
	sum := sha256.Sum256([]byte(name))
	end := maxFileName - 1 - 32
	if i := strings.LastIndexByte(s[end-2:end], '%'); i >= 0 {
		end += i - 2 // do not cut inside an escape
	}
	return s[:end] + "~" + hex.EncodeToString(sum[:16])
}

// collective reports whether one file has all resources of a type. Envoy reads listeners, clusters and
// scopes with "a wildcard subscription".
func collective(t *xds.Type) bool { return readByEnvoy(t) && t.Implicit && t.Stream != "" }

// deltaOnly reports whether a type cannot come from files: VHDS and LEDS need incremental streams.
func deltaOnly(t *xds.Type) bool { return readByEnvoy(t) && t.Stream == "" }

// readByEnvoy reports whether Envoy reads files of a type. It no longer reads v2 types, so these must
// not share files with v3 types.
func readByEnvoy(t *xds.Type) bool { return t.Known() && !t.V2 }

// pathOf returns the path of a resource's file, relative to current.
func (f *Format) pathOf(t *xds.Type, name string) string {
	if collective(t) {
		return strings.ToLower(t.Short) + f.ext
	}
	dir := strings.ToLower(t.Short)
	if !readByEnvoy(t) {
		dir = fileName(t.URL[strings.LastIndexByte(t.URL, '/')+1:])
	}
	return dir + "/" + fileName(xds.CanonicalName(name)) + f.ext
}
