package server

import (
	"context"
	"log/slog"
	"strings"
	"unicode/utf8"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// maxLogged is how many bytes of a client's text go into a line of the log.
const maxLogged = 512

// logNack logs a NACK, unless the same was said a moment ago: then it is counted
// and a line for those who debug.
func (s *Server) logNack(st *Stream, e protocol.Event) {
	var failure xds.Status
	if e.Error != nil {
		failure = *e.Error
	}
	attrs := []slog.Attr{
		slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.String("version", e.Version),
		slog.String("in_use", clip(e.InUse)), slog.String("nonce", e.Nonce), slog.Uint64("stream", st.ID),
		slog.Int("code", int(failure.Code)), slog.String("error", clip(failure.Message)),
	}
	s.warn(reason{e.Type.URL, mask(failure.Message)}, "client refused a response", attrs)
}

// warn logs a line, and counts those that follow for the same reason: they are
// for those who debug.
func (s *Server) warn(why reason, line string, attrs []slog.Attr) {
	tell := func(level slog.Level, more ...slog.Attr) {
		s.log.LogAttrs(context.Background(), level, line, append(attrs, more...)...) //nolint:sloglint // callers give a literal
	}
	if s.repeats.first(why, func(n int) { tell(slog.LevelWarn, slog.Int("repeated", n)) }) {
		tell(slog.LevelWarn)
		return
	}
	tell(slog.LevelDebug)
}

// logWaived logs that something went on without an answer that it waited for:
// which client is silent, of which type. Of many names it is one line, and one
// that counts.
func (s *Server) logWaived(st *Stream, e protocol.Event) {
	tell := func(level slog.Level, more ...slog.Attr) {
		s.log.LogAttrs(context.Background(), level, "client did not answer: what waited for it goes on", append([]slog.Attr{
			slog.String("node", clip(st.Node.ID)), slog.String("unanswered", e.By.Short), slog.String("type", e.Type.Short),
			slog.String("name", clip(e.Name)), slog.Uint64("stream", st.ID),
		}, more...)...)
	}
	if s.repeats.first(reason{e.By.URL, "silent: " + st.Node.ID}, func(n int) { tell(slog.LevelWarn, slog.Int("repeated", n)) }) {
		tell(slog.LevelWarn)
		return
	}
	tell(slog.LevelDebug)
}

// logWaits logs that a client is told nothing, since nobody has said what there is:
// one line, and one that counts.
func (s *Server) logWaits(st *Stream) {
	s.warn(reason{"", "waits"}, "client waits: it is not known yet what its node may see",
		[]slog.Attr{slog.String("node", clip(st.Node.ID)), slog.Uint64("stream", st.ID)})
}

func (s *Server) logAck(st *Stream, e protocol.Event) {
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelDebug, "client accepted a response",
		slog.String("node", clip(st.Node.ID)), slog.String("type", e.Type.Short), slog.String("version", e.Version),
		slog.Duration("took", e.Took), slog.Uint64("stream", st.ID))
}

// nodeChange notes that a client says it is another node than before. What a
// stream may see was decided by its first request.
func (s *stream) nodeChange(node *xds.Node) {
	if s.nodeChanged {
		return
	}
	s.nodeChanged = true
	s.server.nodeChanges.Add(1)
	s.server.log.LogAttrs(context.Background(), slog.LevelWarn, "client changed its node id on a stream: ignored",
		slog.String("node", clip(s.info.Node.ID)), slog.String("now", clip(node.ID)), slog.Uint64("stream", s.info.ID))
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
	if (t.Is(xds.Secret) || t.Is(xds.Secret.Legacy())) && text != "" {
		return "(withheld)"
	}
	if i := strings.Index(text, marker); i >= 0 {
		text = text[:i] + "… " + cause(text[i:])
	}
	text = withoutValues(text)
	if i := strings.Index(text, "-----BEGIN "); i >= 0 {
		text = text[:i] + "…"
	}
	return strings.Join(strings.Fields(text), " ")
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

// maxFailure is how many bytes of the text of a NACK are looked at; Envoy's have
// 4,096.
const maxFailure = 16 << 10

// clip cuts a client's text to what a line of the log may hold.
func clip(s string) string { return cut(s, maxLogged) }

// cut cuts a text after n bytes or a few less, and says so.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
