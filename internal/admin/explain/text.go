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

// maxName and maxText limit the bytes of names and of client texts in answers.
const (
	maxName = 200
	maxText = 1000
)

func quote(name string) string { return strconv.Quote(textutil.Head(name, maxName)) }

// title returns a text with type and name, such as: CDS "pay".
func title(t *xds.Type, name string) string {
	if name == xds.Wildcard {
		return "any " + t.String()
	}
	return t.String() + " " + quote(name)
}

// after returns lead and text, or "" if text is empty.
func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// list returns a text with the first names, at most `most`, and the number of the others.
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

// count returns a number with its noun, such as "1 name" or "3 names".
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return strconv.Itoa(n) + " " + of + "s"
}

// ago returns the time since something happened, such as "3 s", "4 m" or "2 h".
func (e *Explainer) ago(at time.Time) string {
	if at.IsZero() {
		return "some time"
	}
	return seconds(max(e.d.Now().Sub(at), 0))
}

// seconds returns a duration as text, in one unit.
func seconds(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d.Hours())) + " h"
	}
	return strconv.Itoa(int(d.Hours()/24)) + " days"
}

// since returns the result of ago with the word "ago", such as "4 m ago".
func (e *Explainer) since(at time.Time) string { return e.ago(at) + " ago" }

// stale is the time after which a response without ACK or NACK makes the client stale.
const stale = 30 * time.Second

func (e *Explainer) stale(sent time.Time) bool {
	return !sent.IsZero() && e.d.Now().Sub(sent) >= stale
}

// stateOf returns the API state of a name.
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

// cannotTellAbsence reports whether a name does not exist, and SotW cannot report that for the name's
// type.
func cannotTellAbsence(st *server.Stream, t *xds.Type, n *protocol.NameState) bool {
	return n.State == protocol.StateAbsent && n.Why == protocol.ByName && st.Variant == xds.SotW && !t.FullState
}

func stampVersion(s *xds.Stamp) string {
	if s == nil {
		return ""
	}
	return s.Version
}

// clipped returns a client's text on one line, at most maxText bytes.
func clipped(text string) string {
	return textutil.Head(strings.Join(strings.Fields(text), " "), maxText)
}
