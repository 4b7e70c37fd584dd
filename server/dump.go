package server

import (
	"regexp"
	"strings"
	"sync"

	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// withheld stands where a text may show what nobody may see.
const withheld = "(withheld, because it may show a secret: see the client's own log, or Envoy's update_rejected)"

// shown returns what may be shown of the text of a NACK of a node.
func (s *Server) shown(node *xds.Node, t *xds.Type, text string) string {
	text = textutil.Head(text, maxFailure)
	if text != "" && !isSecret(t) && s.redactor != nil {
		text = withoutKeys(withoutDump(text)) // before one is hidden, and with it the line by which others are known
		var ok bool
		if text, ok = s.redactor(node, t, text); !ok {
			return withheld
		}
	}
	return presentable(t, text)
}

// reason returns what tells the texts of NACKs apart, which nobody is to see, and what may
// be shown of it, which is made once, by whoever asks first.
func (s *Server) reason(node *xds.Node, e protocol.Event) (why string, shown func() string) {
	t, text := e.Type, textutil.Head(e.Error.Message, maxFailure)
	return presentable(t, text), sync.OnceValue(func() string { return s.shown(node, t, text) })
}

func isSecret(t *xds.Type) bool { return t.Is(xds.Secret) || t.Is(xds.Secret.Legacy()) }

// dumped is a field with a text, or a list of them, as protobuf's text format and JSON have
// it: of a dump without a marker. The server does not know which fields are sensitive.
var dumped = regexp.MustCompile(`("[^"]*"|\w+)(\s*[:=]\s*)(?:\[\s*\\*"[^\]]*\]?|\\*"(?:[^"\\]|\\.)*"?)`)

// withoutValues leaves out what fields have in them, but for names of resources and of
// types: they say what to mend.
func withoutValues(text string) string {
	return dumped.ReplaceAllStringFunc(text, func(s string) string {
		field := dumped.FindStringSubmatch(s)
		switch field[1] {
		case "name", "type_url", `"@type"`:
			return s
		}
		return strings.Join(field[1:], "") + `"…"`
	})
}
