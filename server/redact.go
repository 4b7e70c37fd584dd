package server

import (
	"regexp"
	"strings"
	"sync"

	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// withheld replaces a text that may contain a secret.
const withheld = "(withheld, because it may show a secret: see the client's own log, or Envoy's update_rejected)"

// shown returns the part of a NACK's text that people may see.
func (s *Server) shown(node *xds.Node, t *xds.Type, text string) string {
	text = textutil.Head(text, maxFailure)
	if text != "" && !isSecret(t) && s.redactor != nil {
		text = withoutKeys(withoutDump(text)) // done before the redactor, which may remove the lines by which keys and dumps are found
		var ok bool
		text, ok = s.redactor(node, t, text)
		if !ok {
			return withheld
		}
	}
	return presentable(t, text)
}

// reason returns a key that tells NACK texts apart, and a function that returns the text that people may see. The
// function does its work once, at its first call.
func (s *Server) reason(node *xds.Node, e protocol.Event) (why string, shown func() string) {
	t, text := e.Type, textutil.Head(e.Error.Message, maxFailure)
	return presentable(t, text), sync.OnceValue(func() string { return s.shown(node, t, text) })
}

func isSecret(t *xds.Type) bool { return t.Is(xds.Secret) || t.Is(xds.Secret.Legacy()) }

// dumped finds a field with a string, or a list of strings, in protobuf text format and in JSON. It is for dumps
// without a marker. The server does not know which fields are sensitive.
var dumped = regexp.MustCompile(`("[^"]*"|\w+)(\s*[:=]\s*)(?:\[\s*\\*"[^\]]*\]?|\\*"(?:[^"\\]|\\.)*"?)`)

// withoutValues removes the string values of fields, except names of resources and types, which the reader needs
// to find the mistake.
func withoutValues(text string) string {
	if !strings.Contains(text, `"`) { // the usual case: the expression would take a tenth of the cost of a repeated NACK
		return text
	}
	return dumped.ReplaceAllStringFunc(text, func(s string) string {
		field := dumped.FindStringSubmatch(s)
		switch field[1] {
		case "name", "type_url", `"@type"`:
			return s
		}
		return strings.Join(field[1:], "") + `"…"`
	})
}
