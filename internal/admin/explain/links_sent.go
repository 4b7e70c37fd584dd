package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/xds"
)

// The links "sent" and "accepted": what the server sent to the client, and the client's answer.

// tooLarge is the limit of gRPC clients, minus 4 KiB for the rest of the response.
const tooLarge = xds.GRPCMessageSize - 4<<10

// large returns a text if the resource, or a response with it, is too large for the client; else "".
func (c *chain) large() string {
	switch agent := strings.ToLower(c.agent()); {
	case c.at == nil, c.is != nil && c.is.State == protocol.StateSynced, strings.HasPrefix(agent, "envoy"):
		return ""
	case len(c.at.Body) > tooLarge:
		return fmt.Sprintf("the resource has %s; gRPC clients accept messages of at most 4.0 MiB by default", size(len(c.at.Body)))
	case c.on == nil || c.on.Variant != xds.SotW || !c.t.FullState:
		return ""
	}
	total := 0
	for _, group := range c.decision.Groups {
		for r := range c.before.View(group).Table(c.t).All() {
			if !r.OnDemand {
				total += len(r.Body)
			}
		}
	}
	if total <= tooLarge {
		return ""
	}
	return fmt.Sprintf("a response with all %s has %s, and state of the world cannot split it; gRPC clients accept messages of at most 4.0 MiB by default", c.t, size(total))
}

// smaller is the advice about a resource that is too large for the client.
const smaller = "make it smaller, or raise the client's limit for messages (in gRPC: max receive message size)"

func size(bytes int) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// sent adds the link "sent". If the current state was not sent, the link has the reason.
func (c *chain) sent() {
	if text := c.large(); text != "" && c.broken == "" {
		c.breaks(sent, c.at.Pos.String(), smaller, "%s", text)
		return
	}
	if c.is == nil || c.is.State == protocol.StateUnwanted {
		c.unknown(sent, "not sent, because the client does not subscribe to it")
		return
	}
	n := c.is
	switch n.State {
	case protocol.StateWaiting:
		if len(n.WaitsFor) == 0 {
			c.breaks(sent, "", "wait until the server has the content of the client's groups", "the server does not know yet whether the resource exists")
			return
		}
		what, advice := c.waits(n.WaitsFor)
		c.breaks(sent, "", advice, "it has waited %s for the client's answer to %s", c.e.ago(n.Since), what)
	case protocol.StateDue:
		if m := c.oldest(); m != nil {
			c.breaks(sent, "", c.stalled(), "%s: the client has not answered an earlier response of %s (nonce %s), sent %s",
				c.behind(), c.t, m.Nonce, c.e.since(m.Sent))
			return
		}
		c.breaks(sent, "", "it will be sent when its turn comes; ask again", "%s: its turn has not come", c.behind())
	case protocol.StateSent:
		c.ok(sent, "", "%s, %s", c.what(), c.e.since(n.Since))
	case protocol.StateAbsent:
		if n.Why == protocol.ByWildcard { // a wildcard subscription gets no removals of names that it never had
			c.ok(sent, "", "the client was sent all %s that it may have, and %s is not among them", c.t, quote(c.name))
			return
		}
		if cannotTellAbsence(c.on.Stream, c.t, n) {
			if n.Held != nil {
				c.unknown(sent, "nothing was sent: SotW cannot say that a resource does not exist any more; the client keeps version %s", n.Held.Version)
				return
			}
			c.unknown(sent, "nothing was sent: SotW cannot say that a resource does not exist; the client waits for its own timeout (15 s in Envoy)")
			return
		}
		c.ok(sent, "", "the client was told that it does not exist")
	case protocol.StateRefused:
		if n.RefusedIn == inQuarantine {
			c.ok(sent, "", "version %s was sent, and is now withheld", stampVersion(n.Told))
			return
		}
		c.ok(sent, "", "%s", c.what())
	case protocol.StateLingering:
		keepers, _ := c.waits(n.WaitsFor)
		c.ok(sent, "", "it was removed from the files, and is kept while %s may refer to it%s", orElse(keepers, "another resource of the client"), after(": ", n.Because))
	case protocol.StateUnknown:
		c.ok(sent, "", "the client may have it from an earlier stream")
	default:
		text := "the client was sent the newest state"
		if n.Told != nil {
			text += ": version " + n.Told.Version
		}
		if n.Finds > 0 {
			text += fmt.Sprintf("; the name is an alias or collection, sent as %s", count(n.Finds, "resource"))
		}
		c.ok(sent, "", "%s", text)
	}
}

// what describes the last message about the resource to the client, with the nonce if it is known.
func (c *chain) what() string {
	text := "that it is removed"
	if c.is.Told != nil {
		text = contentOf(c.is.Told)
	}
	return text + after(", nonce ", c.is.Nonce)
}

// contentOf names a state that a client has. If the source supplied the version, the client may have the same
// content under an earlier version, because a change of only the version is not sent (SOTW-13).
func contentOf(s *xds.Stamp) string {
	if known := s.Sum != (xds.Sum{}); known && s.Version != s.Sum.String() {
		return "the content of version " + s.Version + " (its file supplies the version, and the server sends only changed content)"
	}
	return "version " + s.Version
}

// behind returns a text for a resource whose newest state was not sent.
func (c *chain) behind() string {
	if c.is.Told == nil {
		return "not sent yet"
	}
	return "the newest is not sent yet"
}

// oldest returns the oldest unanswered response of the type, or nil.
func (c *chain) oldest() *protocol.Message {
	if c.of == nil || len(c.of.Unanswered) == 0 {
		return nil
	}
	return &c.of.Unanswered[0]
}

// stalled returns the advice for a response that the client has not answered.
func (c *chain) stalled() string {
	if m := c.oldest(); m != nil && c.e.stale(m.Sent) {
		return "the client does not answer: look at its log, and whether it is stuck or overloaded; after a restart it subscribes again"
	}
	return "the client may be busy; ask again in a few seconds"
}

// waits returns a list of the resources that must be accepted first, and the advice.
func (c *chain) waits(refs []xds.Ref) (what, advice string) {
	var all []string
	for _, ref := range refs {
		all = append(all, title(ref.Type, ref.Name))
		if advice == "" && ref.Name != xds.Wildcard {
			advice = fmt.Sprintf("the client must accept %s first: %s", title(ref.Type, ref.Name), c.command(ref.Type, ref.Name))
		}
	}
	return list(all, 3), orElse(advice, "the client must answer first")
}

// accepted adds the link "accepted".
func (c *chain) accepted() {
	if c.is == nil || c.is.State == protocol.StateUnwanted {
		c.unknown(accepted, "nothing was sent")
		return
	}
	n := c.is
	switch n.State {
	case protocol.StateSynced, protocol.StateLingering:
		switch {
		case n.Held != nil:
			c.ok(accepted, "", "the client has accepted %s%s", contentOf(n.Held), c.acked())
		default:
			c.ok(accepted, "", "the client has accepted what it was sent%s", c.acked())
		}
	case protocol.StateRefused:
		c.refusal()
	case protocol.StateSent:
		c.breaks(accepted, "", c.stalled(), "not answered for %s%s", c.e.ago(n.Since), c.holds())
	case protocol.StateAbsent:
		if n.Why == protocol.ByWildcard || cannotTellAbsence(c.on.Stream, c.t, n) {
			c.unknown(accepted, "there is nothing to accept")
			return
		}
		c.ok(accepted, "", "the client knows that it does not exist")
	default:
		c.unknown(accepted, "not sent yet%s", c.holds())
	}
}

// acked returns a text with the time of the client's last ACK for the type, or "".
func (c *chain) acked() string {
	id := uint64(0)
	if c.on != nil {
		id = c.on.ID
	}
	if is := c.status(c.t, id); is != nil && is.Acked != nil {
		return "; it last accepted a response of " + c.t.String() + " " + c.e.since(is.Acked.At)
	}
	return ""
}

// holds returns a text with the version that the client certainly has, or "".
func (c *chain) holds() string {
	if c.is.Held == nil {
		return ""
	}
	return "; it has version " + c.is.Held.Version + " for certain"
}

// orResync returns the end of an advice about a refusal: what to do about a cause outside of the configuration, such as a
// port in use.
func (c *chain) orResync() string {
	command := fmt.Sprintf("chancery resync %s %s/%s", textutil.Head(c.id, maxText), c.t, textutil.Head(c.name, maxText))
	if in := c.retryIn(); in != "" {
		return fmt.Sprintf("; if the cause was outside of the configuration, and is gone: the server sends it again %s; to send it at once: %s", in, command)
	}
	return "; if the cause was outside of the configuration, and is gone: " + command
}

// orTwice returns the part of an advice about a listener whose address another listener of the client has, although
// the files have each address once: listeners cannot exchange addresses in one commit.
func (c *chain) orTwice(g api.Resource, text string) string {
	if g.Reason != "" || !c.t.Is(xds.Listener) || !strings.Contains(text, "duplicate address") {
		return ""
	}
	return "; listeners that exchange their addresses need two commits: first delete one and move the other, then add the deleted one again"
}

// refusal adds the link "accepted" for a resource whose last response the client refused.
func (c *chain) refusal() {
	nack := c.nack()
	var at time.Time
	text := "its error text is no longer known"
	if nack != nil {
		at, text = nack.Since, clipped(nack.Error)
	}
	when := ""
	if !at.IsZero() {
		when = " " + c.e.since(at)
	}
	guilty := c.guilty
	for _, g := range guilty {
		if g.Name == c.name && len(guilty) == 1 {
			c.breaks(accepted, g.Place, "correct "+orElse(g.Place, "it")+c.orTwice(g, text)+c.orResync(), "the client refused it%s: %s%s", when, text, c.kept())
			return
		}
	}
	if len(guilty) > 0 {
		c.breaks(accepted, guilty[0].Place, "correct "+placed(guilty),
			"the client refused the response with this resource%s, because of %s; whether it applied this resource is unknown; its error: %s", when, blamed(guilty), text)
		return
	}
	c.breaks(accepted, "", "look at the client's log; chancery check --envoy finds what only Envoy knows"+c.orResync(),
		"the client refused the response with this resource%s; which resource is faulty is unknown; its error: %s", when, text)
}
