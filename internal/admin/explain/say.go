package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
)

// maxName and maxText are how many bytes are told of a name, and of what a client says.
const (
	maxName = 200
	maxText = 1000
)

func quote(name string) string { return strconv.Quote(textutil.Head(name, maxName)) }

// called is how a resource is called: CDS "pay".
func called(t *xds.Type, name string) string {
	if name == xds.Wildcard {
		return "any " + t.String()
	}
	return t.String() + " " + quote(name)
}

// after is a text that is there with what leads to it, or nothing.
func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// list joins a few names, and counts the others.
func list(names []string, most int) string {
	more := len(names) - most
	if more > 0 {
		names = names[:most]
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// count is "1 name", or "3 names".
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return strconv.Itoa(n) + " " + of + "s"
}

// ago is how long ago something was: "3 s", "4 m", "2 h".
func (e *Explainer) ago(at time.Time) string {
	d := max(e.d.Now().Sub(at), 0)
	switch {
	case at.IsZero():
		return "some time"
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// since is the same as a point in time: "4 m ago".
func (e *Explainer) since(at time.Time) string { return e.ago(at) + " ago" }

// stale is how long a client may take to answer before that looks wrong.
const stale = 30 * time.Second

func (e *Explainer) stale(sent time.Time) bool {
	return !sent.IsZero() && e.d.Now().Sub(sent) >= stale
}

// stateOf says how a client stands with a name, in the words of the API.
func (e *Explainer) stateOf(n *protocol.NameState) api.State {
	switch n.State {
	case protocol.StateSynced:
		return api.Synced
	case protocol.StateAbsent:
		return api.Absent
	case protocol.StateSent:
		if e.stale(n.Since) {
			return api.Stale
		}
		return api.Sent
	case protocol.StateRefused:
		return api.Nacked
	case protocol.StateWaiting:
		return api.Waiting
	case protocol.StateLingering:
		return api.Leaving
	case protocol.StateUnwanted:
		return api.Idle
	}
	return api.NotSent
}

// wordless reports whether a name does not exist, and the protocol of the stream has no way to say so.
func wordless(st *server.Stream, t *xds.Type, n *protocol.NameState) bool {
	return n.State == protocol.StateAbsent && n.Why == protocol.ByName && st.Variant == xds.SotW && !t.FullState
}

func stampVersion(s *xds.Stamp) string {
	if s == nil {
		return ""
	}
	return s.Version
}

// clipped is what a client says, in one line.
func clipped(text string) string {
	return textutil.Head(strings.Join(strings.Fields(text), " "), maxText)
}
