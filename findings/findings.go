// Package findings lists the errors and warnings about configuration files. A [Problem] is one of them
// with its position in a file. Each kind is a row of a table with a stable code. docs/findings.md and
// `chancery check --explain` show the table. The package itself checks nothing.
package findings

import (
	"slices"
	"strings"
)

// A Code is the name of a kind of finding, such as "XDS0301". A code never changes its meaning.
type Code string

// The kinds of findings, in families: 01 reading, 02 references, 03 rules of Envoy's API, 04 other
// errors that Envoy refuses, 05 access.yaml, 06 secrets, 07 groups, 08 other readers of the same file,
// 09 results of a real Envoy.
const (
	Other         Code = "XDS0100" // another error
	Syntax        Code = "XDS0101" // the file has a syntax error
	UnknownField  Code = "XDS0102" // unknown field
	WrongValue    Code = "XDS0103" // a value of the wrong kind
	UnknownType   Code = "XDS0104" // unknown message type
	DuplicateKey  Code = "XDS0105" // the same thing twice
	NotResource   Code = "XDS0106" // this is not a resource
	Unreadable    Code = "XDS0107" // a file or a directory cannot be read
	NoResources   Code = "XDS0108" // there is no resource at all
	Unusable      Code = "XDS0109" // a resource that cannot be served
	DuplicateName Code = "XDS0110" // two resources with the same name
	V2            Code = "XDS0111" // a resource of the v2 API
	EmptyFile     Code = "XDS0112" // a file without resources

	Dangling Code = "XDS0201" // a reference to a resource that no file has
	Unused   Code = "XDS0202" // a resource that nothing refers to

	InvalidValue     Code = "XDS0301" // a value that Envoy's API does not allow
	MissingField     Code = "XDS0302" // a required field is missing
	NegativeDuration Code = "XDS0303" // a negative duration

	DuplicateDomain Code = "XDS0401" // a domain twice in one route configuration
	EDS             Code = "XDS0402" // a cluster of type EDS without eds_config, or eds_cluster_config in another type
	DuplicateSocket Code = "XDS0403" // two listeners on one socket
	InvalidRegex    Code = "XDS0404" // a regular expression that RE2 does not accept
	TerminalFilter  Code = "XDS0405" // a chain of filters does not end with its terminal filter
	NoFilterChain   Code = "XDS0406" // a listener without an address or filter chains
	HostName        Code = "XDS0407" // a host name where an IP address is needed
	LogicalDNS      Code = "XDS0408" // a LOGICAL_DNS cluster without exactly one endpoint
	SameMatch       Code = "XDS0409" // two filter chains with the same match
	SecretSource    Code = "XDS0410" // a secret without a source
	LoadBalancing   Code = "XDS0411" // a load balancing policy that does not fit the type of the cluster
	NoSettings      Code = "XDS0412" // a filter without settings
	NoCert          Code = "XDS0413" // TLS for clients without a certificate
	Weights         Code = "XDS0414" // weighted clusters whose weights add up to 0
	UnknownCluster  Code = "XDS0415" // a route that Envoy validates, to a cluster that does not exist
	LargeRegex      Code = "XDS0416" // a regular expression above the limit of a default Envoy

	AccessRule    Code = "XDS0501" // a rule in access.yaml that cannot be used
	AmbiguousRule Code = "XDS0502" // a rule in access.yaml that may match more than you want
	AdminRole     Code = "XDS0503" // a binding in the roles file of the admin API that cannot be used

	KeyPair             Code = "XDS0601" // a certificate or key that no client can use
	ExpiringCertificate Code = "XDS0602" // a certificate that has expired or expires within 30 days

	UnknownKey     Code = "XDS0701" // an unknown key in group.yaml
	NodeRule       Code = "XDS0702" // an invalid rule for nodes
	GroupName      Code = "XDS0703" // a name that a group cannot have
	UnknownGroup   Code = "XDS0704" // a group that does not exist
	IncludeCycle   Code = "XDS0705" // groups that include each other in a circle
	MisplacedKey   Code = "XDS0706" // a key that has no meaning in this group.yaml
	UnusedGroup    Code = "XDS0707" // a group that no node gets
	ForeignPattern Code = "XDS0708" // a pattern of another language in group.yaml

	Portability        Code = "XDS0801" // a form that Envoy's own reader refuses
	EnvoyOnly          Code = "XDS0802" // a form that only Envoy's own reader accepts
	ReadDifferently    Code = "XDS0803" // a value that Envoy's own reader takes for another one
	UnrenderedTemplate Code = "XDS0804" // a text that looks like an unrendered template
	LargeResponse      Code = "XDS0805" // a response that gRPC clients do not accept by default

	RefusedByEnvoy Code = "XDS0901" // Envoy refuses it
	NotValidated   Code = "XDS0902" // Envoy did not validate it
)

// IsEnvoyRule reports whether a server can serve the resource, but Envoy would refuse it.
func (c Code) IsEnvoyRule() bool { return c >= InvalidValue && c <= LargeRegex }

// IsAlwaysChecked reports whether the finding is about whether the files can be loaded at all. A check
// cannot ignore such findings, because its result would be wrong.
func (c Code) IsAlwaysChecked() bool {
	return c < Dangling || c == KeyPair || c >= UnknownKey && c < UnusedGroup
}

// A Kind is the description of a code.
type Kind struct {
	Code    Code
	Warning bool // the resource is served
	Title   string
	Why     string // effect on clients
	Remedy  string
}

// Severity returns "error" or "warning".
func (k Kind) Severity() string {
	if k.Warning {
		return "warning"
	}
	return "error"
}

// All returns all kinds, sorted by code.
func All() []Kind { return slices.Clone(table) }

// Explain returns the kind of a code, in upper or lower case.
func Explain(code string) (Kind, bool) {
	for _, k := range table {
		if strings.EqualFold(string(k.Code), code) {
			return k, true
		}
	}
	return Kind{}, false
}

// Text returns the output of `chancery check --explain`.
func (k Kind) Text() string {
	return string(k.Code) + " (" + k.Severity() + "): " + k.Title + "\n\n" + fill(k.Why) + "\n\n" + fill("What to do: "+k.Remedy) + "\n"
}

// fill breaks a text at spaces into lines of at most 80 characters.
func fill(text string) string {
	var b strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case width == 0:
		case width+1+len(word) > 80:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}
