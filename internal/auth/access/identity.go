package access

import (
	"strconv"
	"strings"

	"github.com/chancery-xds/chancery/internal/text/glob"
	"github.com/chancery-xds/chancery/internal/yamlkeys"
)

// names returns the DNS names in lower case and without a trailing dot, because DNS ignores both.
func (id *Identity) names() []string {
	names := make([]string, 0, len(id.DNS))
	for _, n := range id.DNS {
		n = glob.Lower(strings.TrimSuffix(n, "."))
		if n != "" {
			names = append(names, n)
		}
	}
	return names
}

// own reports whether a node ID is a name of the identity: "node.id must be a DNS or URI name of the
// certificate, or the last segment of its SPIFFE ID". A wildcard name does not count.
func (id *Identity) own(node string) bool {
	if node == "" {
		return false
	}
	for _, n := range id.DNS {
		n = strings.TrimSuffix(n, ".")
		if !strings.Contains(n, "*") && (node == n || node == glob.Lower(n)) {
			return true
		}
	}
	for _, u := range id.URIs {
		if node == u || node == lastSegment(u) {
			return true
		}
	}
	return false
}

// lastSegment returns the last segment of a SPIFFE ID; "" if it has none, or is not a SPIFFE ID.
//
// "The trust domain name … must not contain any characters other than lowercase letters, numbers,
// dots, dashes, and underscores"; segments of the path may have capitals, too. "The path MUST NOT
// include empty segments, . or ..": https://spiffe.io/docs/latest/spiffe-specs/spiffe-id/
func lastSegment(uri string) string {
	id, ok := strings.CutPrefix(uri, "spiffe://")
	domain, path, has := strings.Cut(id, "/")
	if !ok || !has || !isSPIFFEText(domain, false) {
		return ""
	}
	last := ""
	for last = range strings.SplitSeq(path, "/") {
		if last == "." || last == ".." || !isSPIFFEText(last, true) {
			return ""
		}
	}
	return last
}

// isSPIFFEText reports whether a text is not empty and has only characters of a SPIFFE ID.
func isSPIFFEText(s string, capitals bool) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		case capitals && c >= 'A' && c <= 'Z':
		default:
			return false
		}
	}
	return s != ""
}

// String describes the identity in a short line without claims.
func (id Identity) String() string {
	var b strings.Builder
	say := func(what, text string) {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		b.WriteString(what + " " + yamlkeys.Quoted(text))
	}
	const most = 3
	for i, u := range id.URIs {
		if i == most {
			b.WriteString(", …")
			break
		}
		say("URI", u)
	}
	for i, n := range id.DNS {
		if i == most {
			b.WriteString(", …")
			break
		}
		say("DNS", n)
	}
	if b.Len() == 0 && id.Subject != "" {
		say("subject", id.Subject)
	}
	switch {
	case id.Kind == Unix:
		return "uid " + strconv.Itoa(id.UID)
	case id.Kind == None:
		return "unidentified"
	case b.Len() == 0:
		return id.Kind + " without a name"
	}
	return id.Kind + " " + b.String()
}

// called returns the description of the identity for denials.
func (id *Identity) called() string {
	if id.Kind == None {
		return "a connection that proves no identity"
	}
	return "the identity " + id.String()
}
