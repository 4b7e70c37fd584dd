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
	// maxLogged is how many bytes of a client's text are in a line of the log.
	maxLogged = 512

	// maxReason is the same limit for the text of a NACK. The start of this text has the place of
	// the mistake, and the end has the cause.
	maxReason = 1024

	// maxFew is how many equal lines of level INFO are logged within 10 s before they are counted: the clients of
	// a server often connect and disconnect together.
	maxFew = 20
)

// logNack logs a NACK. If the same reason was logged a moment ago, it counts the NACK and logs it at level DEBUG.
// A refusal of the same content as before, with the same text, is a line of level DEBUG.
func (s *Server) logNack(st *Stream, e protocol.Event, why string, shown func() string) {
	const line = "client refused a response (NACK)"
	now := time.Now()
	since, _ := s.refused.get(refusal{st.Node.ID, e.Type.URL})
	attrs := func() []slog.Attr {
		suspects, oneOf := s.suspectsOf(st.Node, e, why)
		names, places := make([]string, len(suspects)), []string{}
		for i, one := range suspects {
			names[i] = clip(one.Name)
			if one.Place != "" {
				places = append(places, clip(one.Place))
			}
		}
		var code int
		if e.Error != nil {
			code = int(e.Error.Code)
		}
		attrs := []slog.Attr{slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.Any("resources", names), slog.Any("at", places)}
		if oneOf > 1 {
			attrs = append(attrs, slog.Int("one_of", oneOf))
		}
		return append(attrs,
			slog.String("version", e.Version), slog.String("in_use", clip(e.InUse)), slog.String("nonce", e.Nonce), slog.Uint64("stream", st.ID),
			slog.Int("code", code), slog.String("error", textutil.Middle(shown(), maxReason)))
	}
	if e.Repeated { // HEAL-2: logged at the first refusal
		s.logLine(slog.LevelDebug, line, attrs)
		return
	}
	s.warnOf(st, e.Type.URL+" "+normalized(why), line, attrs, slog.Time("since", since), slog.Time("last", now))
}

// suspectsOf returns the resources that are the reason of a NACK. If they are not known, it returns up to 5
// resources of the refused response, and the number of its resources, of which one is the reason.
func (s *Server) suspectsOf(node *xds.Node, e protocol.Event, text string) (all []Suspect, oneOf int) {
	if s.suspects != nil {
		all = s.suspects(node, e.Type, e.Names, text)
	}
	if all != nil {
		return all, 0
	}
	for _, name := range e.Names {
		all = append(all, Suspect{name, s.place(node, e.Type, name)})
	}
	if len(e.Names) > 0 && strings.Contains(text, e.Names[0]) { // the text has the name
		return all, 0
	}
	return all, e.Count
}

// warn logs a warning. It counts warnings with the same reason that follow, and logs them at level DEBUG.
func (s *Server) warn(st *Stream, why, line string, attrs []slog.Attr) {
	s.warnOf(st, why, line, func() []slog.Attr { return attrs })
}

// warnOf does the same as warn, but computes the attributes only when they are needed. A line that counts
// warnings also has the attributes of counting.
func (s *Server) warnOf(st *Stream, why, line string, attrs func() []slog.Attr, counting ...slog.Attr) {
	if s.addressLog.full(s, st) {
		s.logLine(slog.LevelDebug, line, attrs)
		return
	}
	counts := func(n int, by []string) {
		if s.addressLog.allow(s, st) {
			s.logLine(slog.LevelWarn, line, attrs, append(repeated(n, by), counting...)...)
		}
	}
	level := slog.LevelDebug
	if s.repeats.Allow(logOwner(st), why, 1, counts) && s.addressLog.allow(s, st) {
		level = slog.LevelWarn
	}
	s.logLine(level, line, attrs)
}

// logInfo logs a line of level INFO, and counts equal lines that follow.
func (s *Server) logInfo(line string, attrs ...slog.Attr) {
	s.logSome(slog.LevelInfo, maxFew, line, line, attrs)
}

// logSome does the same as logInfo, for any level and any number of lines.
func (s *Server) logSome(level slog.Level, most int, why, line string, all []slog.Attr) {
	attrs := func() []slog.Attr { return all }
	now := slog.LevelDebug
	if s.repeats.Allow("", why, most, func(n int, by []string) { s.logLine(level, line, attrs, repeated(n, by)...) }) {
		now = level
	}
	s.logLine(now, line, attrs)
}

func (s *Server) logLine(level slog.Level, line string, attrs func() []slog.Attr, more ...slog.Attr) {
	if ctx := context.Background(); s.log.Enabled(ctx, level) {
		s.log.LogAttrs(ctx, level, line, slices.Concat(attrs(), more)...) //nolint:sloglint // callers give a literal
	}
}

// repeated returns the attributes of a line that reports left-out lines: the number of lines, and
// the number of nodes if there are several. The other attributes are those of the last left-out
// line.
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

// logOwner identifies the client of a line, so that a client cannot hide the warnings about
// another. The owner is a node at an address, because clients may invent node ids. Without a node
// id it is the stream, and before the first request only the address.
func logOwner(st *Stream) string {
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

// logWaived logs that the server went on without an answer for which it had waited. The line names
// the silent client and the unanswered type. Many names make one line with a count.
func (s *Server) logWaived(st *Stream, e protocol.Event) {
	s.warn(st, e.By.URL+" silent: "+st.Node.ID, "client did not answer: changes that waited for it are sent now", []slog.Attr{
		slog.String("node", clip(st.Node.ID)), slog.String("unanswered", e.By.Short), slog.String("type", e.Type.Short),
		slog.String("name", clip(e.Name)), slog.Uint64("stream", st.ID),
	})
}

// logWaits logs that a client gets nothing because the content for its node is not known. Many
// clients make one line with a count.
func (s *Server) logWaits(st *Stream) {
	s.logSome(slog.LevelWarn, 1, "waits", "client waits: nothing is configured for its node yet",
		[]slog.Attr{slog.String("node", clip(st.Node.ID)), slog.Uint64("stream", st.ID)})
}

// logQueues counts a stream that waits for its first answers. For a fleet that reconnects at once it logs one line
// with a count.
func (s *Server) logQueues() {
	s.tally[mustWait].Add(1)
	const line = "many clients connect at once: they get their first responses in turn"
	s.logSome(slog.LevelInfo, 1, line, line, []slog.Attr{slog.Int("at_once", s.bounds.FirstAnswers), limitAttr(limitNames[mustWait])})
}

// logRecovered logs that a client no longer refuses a type (HEAL-5).
func (s *Server) logRecovered(st *Stream, e protocol.Event) {
	s.logInfo("client no longer refuses a type",
		slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.String("version", e.Version),
		slog.String("after", e.Took.Round(time.Millisecond).String()), slog.Uint64("stream", st.ID))
}

func (s *Server) logAck(st *Stream, e protocol.Event) {
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelDebug, "client accepted a response",
		slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.String("version", e.Version),
		slog.String("took", e.Took.Round(time.Microsecond).String()), slog.Uint64("stream", st.ID))
}

// nodeChange logs that a client sent another node id than in its first request. The server ignores
// the new id: the first request decides which resources a stream may see.
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

// encode encodes a response. It logs a warning for the first response of each type that clients with default
// settings cannot receive.
func (s *Server) encode(v xds.Variant, r *xds.Response) *message {
	m := &message{data: wire.Encode(v, r, s.identifier())}
	if n := m.data.Len(); n > xds.GRPCMessageSize {
		s.mu.Lock()
		told := s.large[r.Type.URL]
		s.large[r.Type.URL] = true
		s.mu.Unlock()
		if !told {
			s.log.Warn("a response is larger than gRPC clients accept by default: raise their limit, or split the configuration",
				"type", r.Type.Short, "bytes", n, "resources", len(r.Upserts), "errors", len(r.Missing), "default", xds.GRPCMessageSize)
		}
	}
	return m
}

// presentable returns the text of a NACK for logs and pages, without secrets.
//
// The texts of Envoy contain dumps of the refused message, which may have keys and passwords. A
// dump begins with a marker, which differs between builds, and ends before the cause:
//
//	goo.gle/debugonly   \nname: "a"\n…}\n: Proto constraint validation failed (…)
func presentable(t *xds.Type, text string) string {
	if isSecret(t) && text != "" {
		return withheld
	}
	text = withoutValues(withoutDump(text))
	return strings.Join(strings.Fields(withoutKeys(text)), " ")
}

// withoutKeys cuts a text at the start of a PEM key.
func withoutKeys(text string) string {
	if i := strings.Index(text, "-----BEGIN "); i >= 0 {
		text = text[:i] + "…"
	}
	return text
}

// withoutDump removes the dump of a message after a marker.
func withoutDump(text string) string {
	if i := strings.Index(text, marker); i >= 0 {
		text = text[:i] + "… " + afterDump(text[i:])
	}
	return text
}

const marker = "goo.gle/debug"

// afterDump returns the text after a dump, or "" if the text ends within the dump.
func afterDump(text string) string {
	if i := strings.LastIndex(text, "\n: "); i >= 0 {
		return text[i+1:]
	}
	if i := strings.LastIndex(text, ": Proto constraint validation failed"); i >= 0 {
		return text[i:]
	}
	return ""
}

// digits are numbers that differ between texts with the same meaning: ports, lengths and addresses.
var digits = regexp.MustCompile(`[0-9]+`)

// normalized returns a text without the parts that differ between texts with the same meaning.
func normalized(text string) string {
	return textutil.Middle(digits.ReplaceAllLiteralString(text, "0"), maxLogged)
}

// maxFailure is how many bytes of the text of a NACK are used. The texts of Envoy have up to 4,096.
const maxFailure = 16 << 10

// clip shortens a client's text for a line of the log.
func clip(s string) string { return textutil.Head(s, maxLogged) }
