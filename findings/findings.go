// Package findings says what can be wrong with configuration: a [Problem] is one thing
// that is, with its place. Each kind of them is a row of a table, and has a code that never
// changes its meaning: docs/findings.md is made of it, and so is what
// `chancery check --explain` tells. It looks for nothing itself.
package findings

import (
	"slices"
	"strings"
)

// A Code names a kind of finding, such as "XDS0301". A code is never used again for
// something else.
type Code string

// The kinds of findings, in families: 01 reading, 02 references, 03 rules of Envoy's
// API, 04 what Envoy refuses besides, 05 access.yaml, 06 secrets, 07 groups, 08 other readers of the same
// file, 09 what a real Envoy says.
const (
	Other     Code = "XDS0100"
	Syntax    Code = "XDS0101"
	NoField   Code = "XDS0102"
	Misfit    Code = "XDS0103"
	NoType    Code = "XDS0104"
	Twice     Code = "XDS0105"
	NoMessage Code = "XDS0106"
	Unread    Code = "XDS0107"
	Nothing   Code = "XDS0108"
	Unusable  Code = "XDS0109"
	Duplicate Code = "XDS0110"
	V2        Code = "XDS0111"
	Empty     Code = "XDS0112"

	Dangling Code = "XDS0201"
	Unused   Code = "XDS0202"

	Rule     Code = "XDS0301"
	Required Code = "XDS0302"
	Negative Code = "XDS0303"

	Domains      Code = "XDS0401"
	EDS          Code = "XDS0402"
	Socket       Code = "XDS0403"
	Regex        Code = "XDS0404"
	Terminal     Code = "XDS0405"
	NoChain      Code = "XDS0406"
	Address      Code = "XDS0407"
	LogicalDNS   Code = "XDS0408"
	SameMatch    Code = "XDS0409"
	SecretSource Code = "XDS0410"
	Balancing    Code = "XDS0411"
	NoSettings   Code = "XDS0412"
	NoCert       Code = "XDS0413"
	Weights      Code = "XDS0414"

	Access  Code = "XDS0501"
	Unclear Code = "XDS0502"

	KeyPair Code = "XDS0601"
	Ending  Code = "XDS0602"

	NoKey     Code = "XDS0701"
	Selector  Code = "XDS0702"
	GroupName Code = "XDS0703"
	NoGroup   Code = "XDS0704"
	Circle    Code = "XDS0705"
	Misplaced Code = "XDS0706"
	NoNode    Code = "XDS0707"
	Literal   Code = "XDS0708"

	Portability Code = "XDS0801"
	EnvoyOnly   Code = "XDS0802"
	Misread     Code = "XDS0803"
	Unfilled    Code = "XDS0804"

	Refused  Code = "XDS0901"
	NotTried Code = "XDS0902"
)

// OfEnvoy reports whether what is found keeps nobody from reading a resource, and Envoy
// would refuse it.
func (c Code) OfEnvoy() bool { return c >= Rule && c <= Weights }

// Always reports whether it keeps files from being served whatever the server's flags are. So
// nobody can leave it out: without it a check would say that all is well.
func (c Code) Always() bool { return c < Dangling || c == KeyPair || c >= NoKey && c < NoNode }

// A Kind is what is known of a code.
type Kind struct {
	Code    Code
	Warning bool // what has it is served nevertheless
	Title   string
	Why     string // what it means to a client
	Remedy  string
}

// Severity returns "error" or "warning".
func (k Kind) Severity() string {
	if k.Warning {
		return "warning"
	}
	return "error"
}

// All returns all kinds, by code.
func All() []Kind { return slices.Clone(table) }

// Explain returns what is known of a code, in whatever case.
func Explain(code string) (Kind, bool) {
	for _, k := range table {
		if strings.EqualFold(string(k.Code), code) {
			return k, true
		}
	}
	return Kind{}, false
}

// Text returns what `chancery check --explain` says.
func (k Kind) Text() string {
	return string(k.Code) + " (" + k.Severity() + "): " + k.Title + "\n\n" + fill(k.Why) + "\n\n" + fill("What to do: "+k.Remedy) + "\n"
}

// fill breaks a text into lines of at most 80 characters, where it has spaces.
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
