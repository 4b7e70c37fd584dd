package server

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/limit/fair"
	textutil "github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

const (
	// maxLogged is how many bytes of a client's text go into a line of the log.
	maxLogged = 512

	// maxReason is the same of the text of a NACK, of which the head says where something
	// is wrong and the tail what.
	maxReason = 1024

	// maxFew is how many lines of a kind that says nothing is wrong go into the log within
	// 10 s, before they are counted: the clients of a server come and go together.
	maxFew = 20
)

// logNack logs a NACK, unless the same was said a moment ago: then it is counted
// and a line for those who debug.
func (s *Server) logNack(st *Stream, e protocol.Event, why string, shown func() string) {
	s.warnOf(st, e.Type.URL+" "+mask(why), "client refused a response (NACK)", func() []slog.Attr {
		names, places := make([]string, len(e.Names)), []string{}
		for i, name := range e.Names {
			names[i] = clip(name)
			if place := s.place(st.Node, e.Type, name); place != "" {
				places = append(places, clip(place))
			}
		}
		var code int
		if e.Error != nil {
			code = int(e.Error.Code)
		}
		return []slog.Attr{
			slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.Any("resources", names), slog.Any("at", places),
			slog.String("version", e.Version), slog.String("in_use", clip(e.InUse)), slog.String("nonce", e.Nonce), slog.Uint64("stream", st.ID),
			slog.Int("code", code), slog.String("error", textutil.Middle(shown(), maxReason)),
		}
	})
}

// warn logs a line, and counts those that follow for the same reason: they are
// for those who debug.
func (s *Server) warn(st *Stream, why, line string, attrs []slog.Attr) {
	s.warnOf(st, why, line, func() []slog.Attr { return attrs })
}

// warnOf is the same, with attributes that are made when they are needed.
func (s *Server) warnOf(st *Stream, why, line string, attrs func() []slog.Attr) {
	if s.crowds.full(s, st) {
		s.tell(slog.LevelDebug, line, attrs)
		return
	}
	counts := func(n int, by []string) {
		if s.crowds.room(s, st) {
			s.tell(slog.LevelWarn, line, attrs, repeated(n, by)...)
		}
	}
	level := slog.LevelDebug
	if s.repeats.Allow(whose(st), why, 1, counts) && s.crowds.room(s, st) {
		level = slog.LevelWarn
	}
	s.tell(level, line, attrs)
}

// inform logs one of a few lines, and counts those that follow.
func (s *Server) inform(line string, attrs ...slog.Attr) {
	s.say(slog.LevelInfo, maxFew, line, line, attrs)
}

// say is the same of lines that are nobody's.
func (s *Server) say(level slog.Level, most int, why, line string, all []slog.Attr) {
	attrs := func() []slog.Attr { return all }
	now := slog.LevelDebug
	if s.repeats.Allow("", why, most, func(n int, by []string) { s.tell(level, line, attrs, repeated(n, by)...) }) {
		now = level
	}
	s.tell(now, line, attrs)
}

func (s *Server) tell(level slog.Level, line string, attrs func() []slog.Attr, more ...slog.Attr) {
	if ctx := context.Background(); s.log.Enabled(ctx, level) {
		s.log.LogAttrs(ctx, level, line, slices.Concat(attrs(), more)...) //nolint:sloglint // callers give a literal
	}
}

// repeated says how many lines were left out, and whose they were if they were several's:
// what a line shows is of the last.
func repeated(n int, by []string) []slog.Attr {
	attrs := []slog.Attr{slog.Int("repeated", n)}
	var nodes []string
	for _, teller := range by {
		if node, _, _ := strings.Cut(teller, "\x00"); node != "" {
			nodes = append(nodes, clip(node))
		}
	}
	if len(nodes) > 1 {
		attrs = append(attrs, slog.Any("nodes", nodes))
	}
	return attrs
}

// whose says who a line is of, so that no client hides what another says: a node at an
// address, for anybody may call itself so, or a stream, or who has none yet by its address.
func whose(st *Stream) string {
	var host string
	if st.Peer != nil {
		host = fair.Owner(st.Peer)
	}
	switch {
	case st.Node != nil && st.Node.ID != "":
		return st.Node.ID + "\x00" + host
	case st.Node == nil && st.Peer != nil:
		return "\x00" + host
	}
	return "\x00" + strconv.FormatUint(st.ID, 10)
}

// logWaived logs that something went on without an answer that it waited for:
// which client is silent, of which type. Of many names it is one line, and one
// that counts.
func (s *Server) logWaived(st *Stream, e protocol.Event) {
	s.warn(st, e.By.URL+" silent: "+st.Node.ID, "client did not answer: changes that waited for it are sent now", []slog.Attr{
		slog.String("node", clip(st.Node.ID)), slog.String("unanswered", e.By.Short), slog.String("type", e.Type.Short),
		slog.String("name", clip(e.Name)), slog.Uint64("stream", st.ID),
	})
}

// logWaits logs that a client is told nothing, since nobody has said what there is:
// one line, and one that counts.
func (s *Server) logWaits(st *Stream) {
	s.say(slog.LevelWarn, 1, "waits", "client waits: nothing is configured for its node yet",
		[]slog.Attr{slog.String("node", clip(st.Node.ID)), slog.Uint64("stream", st.ID)})
}

// logQueues counts that a stream waits for its first answers: of a fleet that comes back at
// once it is one line, and one that counts.
func (s *Server) logQueues() {
	s.tally[mustWait].Add(1)
	const line = "many clients connect at once: they get their first responses in turn"
	s.say(slog.LevelInfo, 1, line, line, []slog.Attr{slog.Int("at_once", s.bounds.FirstAnswers), limitAttr(limits[mustWait])})
}

// logRecovered logs that a client accepts a type that it refused.
func (s *Server) logRecovered(st *Stream, e protocol.Event, since time.Time) {
	s.inform("client accepted what it refused before",
		slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.String("version", e.Version),
		slog.String("after", time.Since(since).Round(time.Millisecond).String()), slog.Uint64("stream", st.ID))
}

func (s *Server) logAck(st *Stream, e protocol.Event) {
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelDebug, "client accepted a response",
		slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.String("version", e.Version),
		slog.String("took", e.Took.Round(time.Microsecond).String()), slog.Uint64("stream", st.ID))
}

// nodeChange notes that a client says it is another node than before. What a
// stream may see was decided by its first request.
func (s *stream) nodeChange(node *xds.Node) {
	if s.nodeChanged {
		return
	}
	s.nodeChanged = true
	s.server.nodeChanges.Add(1)
	const line = "client changed its node id on a stream: ignored"
	s.server.warn(&s.info, line, line, []slog.Attr{
		slog.String("node", clip(s.info.Node.ID)), slog.String("now", clip(node.ID)), slog.Uint64("stream", s.info.ID),
	})
}

// warnAt is gRPC's default limit for a message that a client receives.
const warnAt = 4 << 20

// encode encodes a response, and warns of the first of each type that clients
// with default settings cannot receive.
func (s *Server) encode(v xds.Variant, r *xds.Response) *message {
	m := &message{data: wire.Encode(v, r, s.identifier())}
	if n := m.data.Len(); n > warnAt {
		s.mu.Lock()
		told := s.large[r.Type.URL]
		s.large[r.Type.URL] = true
		s.mu.Unlock()
		if !told {
			s.log.Warn("a response is larger than clients accept by default: raise their limit, or split the configuration",
				"type", r.Type.Short, "bytes", n, "resources", len(r.Upserts), "errors", len(r.Missing), "default", warnAt)
		}
	}
	return m
}

// presentable returns the text of a NACK in a form fit for logs and pages.
//
// Envoy's texts hold dumps of the message refused, which may contain keys and
// passwords. They stand behind a marker made to be different in each build, and
// end before the cause:
//
//	goo.gle/debugonly   \nname: "a"\n…}\n: Proto constraint validation failed (…)
func presentable(t *xds.Type, text string) string {
	if isSecret(t) && text != "" {
		return withheld
	}
	text = withoutValues(withoutDump(text))
	return strings.Join(strings.Fields(withoutKeys(text)), " ")
}

// withoutKeys cuts a text where a key in PEM begins.
func withoutKeys(text string) string {
	if i := strings.Index(text, "-----BEGIN "); i >= 0 {
		text = text[:i] + "…"
	}
	return text
}

// withoutDump leaves out of a text the dump of a message that stands behind a marker.
func withoutDump(text string) string {
	if i := strings.Index(text, marker); i >= 0 {
		text = text[:i] + "… " + cause(text[i:])
	}
	return text
}

const marker = "goo.gle/debug"

// cause returns what follows a dump; "" if the text was cut within it.
func cause(text string) string {
	if i := strings.LastIndex(text, "\n: "); i >= 0 {
		return text[i+1:]
	}
	if i := strings.LastIndex(text, ": Proto constraint validation failed"); i >= 0 {
		return text[i:]
	}
	return ""
}

// digits differ between clients that mean the same: ports, lengths, addresses.
var digits = regexp.MustCompile(`[0-9]+`)

// mask returns what texts have in common that mean the same.
func mask(text string) string {
	return textutil.Middle(digits.ReplaceAllLiteralString(text, "0"), maxLogged)
}

// maxFailure is how many bytes of the text of a NACK are looked at; Envoy's have
// 4,096.
const maxFailure = 16 << 10

// clip cuts a client's text to what a line of the log may hold.
func clip(s string) string { return textutil.Head(s, maxLogged) }
