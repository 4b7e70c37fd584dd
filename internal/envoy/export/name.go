package export

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/chancery-xds/chancery/xds"
)

// Names of files are as long as this at most, without what says the format:
// less than the 143 bytes that the strictest of common file systems takes.
const longest = 120

// fileName returns the name of the file for a resource. Different names have
// different files, on file systems that do not tell upper from lower case too.
//
// Lower-case letters of ASCII, digits and "-", "_", "." stay as they are, but
// for a "_" or "." at the beginning, which hides a file. Every other byte
// becomes "%" and two hexadecimal digits. What gets too long that way is its
// beginning, "~" and 32 digits of the name's SHA-256.
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
	if len(s) <= longest {
		return s
	}
	sum := sha256.Sum256([]byte(name))
	end := longest - 1 - 32
	if i := strings.LastIndexByte(s[end-2:end], '%'); i >= 0 {
		end += i - 2 // no half of an escape
	}
	return s[:end] + "~" + hex.EncodeToString(sum[:16])
}

// collective reports whether all resources of a type are in one file: "a
// wildcard subscription" is how Envoy reads listeners, clusters and scopes.
func collective(t *xds.Type) bool { return readByEnvoy(t) && t.Implicit && t.Stream != "" }

// deltaOnly reports whether a type cannot come from files: "VHDS" and "LEDS"
// are for incremental streams alone.
func deltaOnly(t *xds.Type) bool { return readByEnvoy(t) && t.Stream == "" }

// readByEnvoy reports whether Envoy has a file of its own form for a type. Those
// of v2 it does not read any more: they share no file with those of v3.
func readByEnvoy(t *xds.Type) bool { return t.Known() && !t.V2 }

// pathOf returns the path below current of the file that has a resource.
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
