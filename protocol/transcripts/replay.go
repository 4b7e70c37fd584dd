package transcripts

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// start is the time at which every transcript begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Replay plays a transcript against sessions. It returns the transcript with the lines that the sessions
// produced in place of the expected ones. An error means that the transcript itself is invalid.
func Replay(script string, open protocoltest.Open, hints Hints) (transcript string, err error) {
	p := &play{open: open, hints: hints, now: start, view: xds.Tables{}, recent: map[string][]*xds.Table{}, older: map[string]bool{}, supplied: map[string]string{}, touched: xds.Names{},
		symbols: map[string]map[string]string{}, kinds: map[string]bool{}}
	n := 0
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("line %d: panic: %v\n%s", n, r, debug.Stack())
		}
	}()
	for s := range strings.Lines(script) {
		n++
		if expected(s) {
			continue
		}
		p.out.WriteString(s)
		s = strings.TrimSpace(s)
		if s == "" || s[0] == '#' {
			continue
		}
		l, err := parse(s)
		if err == nil {
			err = p.step(l)
		}
		if err != nil {
			return "", fmt.Errorf("line %d: %w: %s", n, err, s)
		}
	}
	if p.committing || p.held {
		return "", errors.New("begin without commit, or hold without release")
	}
	return p.out.String(), nil
}

// expected reports whether the line is output that a session should produce.
func expected(s string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return word != "" && word[0] != '#' && strings.ContainsRune("<!", rune(word[len(word)-1])) || word == "error:"
}

// A play is the state of a transcript during its replay.
type play struct {
	open    protocoltest.Open
	hints   Hints
	out     strings.Builder
	now     time.Time
	streams []*stream

	view       xds.Tables
	unknown    xds.Names               // names that the view has not decided yet
	withheld   xds.Names               // names that the view withholds
	recent     map[string][]*xds.Table // by type URL, the newest first
	older      map[string]bool         // types of which the view has an older version instead of a refused one, by type URL
	supplied   map[string]string       // versions that the source supplies, by type URL
	told       protocoltest.Memory     // what clients were sent, on all streams
	touched    xds.Names               // since the last commit
	committing bool                    // between begin and commit
	held       bool                    // between hold and release

	symbols map[string]map[string]string // type URL → hash → "v1"
	kinds   map[string]bool              // of events to print
}

// A stream is a session and what the checks need to know about it.
type stream struct {
	protocoltest.Session
	label     string
	variant   xds.Variant
	only      *xds.Type
	awake     bool      // has a view: it was not released since the last input
	node      *xds.Node // of the first request, unless the request names one
	versions  bool      // print versions in delta too
	nonces    map[string]bool
	opened    map[string]bool // type URLs of the requests
	over      bool
	interests map[string]*interest
	missed    []xds.Names // commits that it was not given
	client    *client     // nil: it has no siblings
}

// A client has the streams whose sessions are siblings.
type client struct {
	name     string
	siblings protocol.Siblings
}

type interest struct {
	wildcard bool
	names    map[string]bool
}

func (p *play) step(l line) error {
	switch l.verb {
	case "set", "remove", "version", "undecided", "decided", "withhold", "unwithhold", "substitute", "unsubstitute", "commit":
	default:
		if p.committing {
			return errors.New("only changes and commit may follow begin")
		}
	}
	switch l.verb {
	case "set", "remove", "version", "undecided", "decided", "withhold", "unwithhold", "substitute", "unsubstitute":
		if err := p.edit(l); err != nil {
			return err
		}
		if p.committing {
			return nil
		}
		p.commit()
	case "begin":
		p.committing = true
		return nil
	case "commit":
		p.committing = false
		p.commit()
	case "hold", "release":
		p.held = l.verb == "hold"
	case "wait":
		d, err := time.ParseDuration(strings.Join(l.words, " "))
		if err != nil {
			return err
		}
		if p.held {
			return errors.New("wait is not allowed between hold and release")
		}
		p.wait(d)
		return nil
	case "events":
		for _, k := range l.words {
			p.kinds[k] = true
		}
		return nil
	case "stream":
		if err := p.begin(l); err != nil {
			return err
		}
	case "close":
		label := strings.Join(l.words, " ")
		i := slices.IndexFunc(p.streams, func(s *stream) bool { return s.label == label })
		if i < 0 {
			return errors.New("no such stream")
		}
		p.leave(p.streams[i])
		p.streams = slices.Delete(p.streams, i, i+1)
	case "resend":
		if err := p.resend(l); err != nil {
			return err
		}
	case ">":
		if err := p.request(l, ""); err != nil {
			return err
		}
	case "expect-error", "expect-limit":
		if len(l.words) == 0 || !strings.HasSuffix(l.words[0], ">") {
			return errors.New("a request must follow")
		}
		verb := l.verb
		l.verb, l.label, l.words = ">", strings.TrimSuffix(l.words[0], ">"), l.words[1:]
		if err := p.request(l, verb); err != nil {
			return err
		}
	default:
		return errors.New("unknown verb")
	}
	p.drain()
	return nil
}

// begin opens a stream.
func (p *play) begin(l line) error {
	if err := l.only("only client agent features refused max maxtypes maxnames maxnamelen grace spread"); err != nil {
		return err
	}
	s := &stream{nonces: map[string]bool{}, opened: map[string]bool{}, interests: map[string]*interest{}}
	opts := protocol.Options{MaxResponse: l.number("max"), MaxTypes: l.number("maxtypes"),
		MaxNames: l.number("maxnames"), MaxNameLen: l.number("maxnamelen"), Spread: uint64(l.number("spread")), Recent: p.tables, Told: p.told.World,
		Withholds: func(t *xds.Type) bool { return p.older[t.URL] || len(p.withheld[t.URL]) > 0 }}
	spelled := false
	for i, w := range l.words {
		switch {
		case w == "sotw" || w == "delta":
			spelled = true
			if w == "delta" {
				s.variant = xds.Delta
			}
		case w == "versions":
			s.versions = true
		case w == "retry":
			opts.Retry = func(*xds.Type, int) bool { return true }
		case w == "forcettl":
			opts.ForceTTL = true
		case w == "bodyless":
			opts.Bodyless = true
		case w == "errors":
			opts.ResourceErrors = true
		case i == 0:
			s.label = w
		default:
			return fmt.Errorf("unknown word %q", w)
		}
	}
	if !spelled {
		return errors.New("stream needs sotw or delta")
	}
	if l.has("grace") {
		d, err := time.ParseDuration(l.text("grace"))
		if err != nil {
			return err
		}
		opts.Grace = d
	}
	if l.has("only") {
		t, err := typeOf(l.text("only"))
		if err != nil {
			return err
		}
		s.only = t
	}
	if l.has("agent") || l.has("features") {
		s.node = &xds.Node{ID: "node", UserAgentName: l.text("agent"), ClientFeatures: l.texts("features")}
	}
	if refused := l.texts("refused"); refused != nil {
		opts.Refused = func(t *xds.Type) bool { return slices.Contains(refused, nameOf(t)) }
	}
	s.Session = p.open(s.variant, s.only, p.seen(), opts)
	s.Advance(p.now)
	s.awake = true
	if i := slices.IndexFunc(p.streams, func(o *stream) bool { return o.label == s.label }); i >= 0 {
		p.leave(p.streams[i])
		p.streams[i] = s
	} else {
		p.streams = append(p.streams, s)
	}
	if l.has("client") {
		if s.only == nil {
			return errors.New("client= needs only=")
		}
		p.join(s, l.text("client"))
	}
	p.release(s)
	return nil
}

// resend makes all sessions send resources again.
func (p *play) resend(l line) error {
	if len(l.words) == 0 || len(l.words) > 2 {
		return errors.New("resend needs a type, and optionally a name")
	}
	t, err := typeOf(l.words[0])
	if err != nil {
		return err
	}
	for _, s := range p.streams {
		if r, ok := s.Session.(interface {
			Resend(t *xds.Type, name string) int
		}); ok {
			p.wake(s)
			r.Resend(t, strings.Join(l.words[1:], ""))
			p.note(s)
		}
	}
	return nil
}

// request sends a request. want is the verb of the expected failure, or "".
func (p *play) request(l line, want string) error {
	if err := l.only("names version nonce error node agent features sub unsub initial"); err != nil {
		return err
	}
	i := slices.IndexFunc(p.streams, func(s *stream) bool { return s.label == l.label })
	if i < 0 {
		return errors.New("no such stream")
	}
	s := p.streams[i]
	if s.over {
		fmt.Fprintf(&p.out, "error: the stream has ended\n")
		return nil
	}
	if len(l.words) != 1 {
		return errors.New("a request needs exactly one type")
	}
	t, err := typeOf(l.words[0])
	if err != nil {
		return err
	}
	req := xds.Request{Type: t, Nonce: l.text("nonce"), Node: s.node, Names: l.texts("names"),
		Subscribe: l.texts("sub"), Unsubscribe: l.texts("unsub")}
	s.node = nil
	if l.has("node") || l.has("agent") || l.has("features") {
		req.Node = &xds.Node{ID: l.text("node"), UserAgentName: l.text("agent"), ClientFeatures: l.texts("features")}
	}
	if l.has("error") {
		req.Error = &xds.Status{Message: l.text("error")}
		if req.Error.Message != "" {
			req.Error.Code = 13
		}
	}
	for _, it := range l.items("initial") {
		req.Initial = append(req.Initial, xds.Version{Name: it.text, Version: it.at})
	}
	if t == nil {
		t = s.only
	}
	if s.variant == xds.SotW && (l.has("sub") || l.has("unsub") || l.has("initial")) ||
		s.variant == xds.Delta && (l.has("names") || l.has("version")) {
		return fmt.Errorf("a field does not belong to a request of a %s stream", s.variant)
	}
	req.Version, err = p.hash(t, l.text("version"))
	if err != nil {
		return err
	}
	p.wake(s)
	err = s.Receive(req)
	switch {
	case err == nil && want != "":
		fmt.Fprintf(&p.out, "error: accepted\n")
	case err != nil && want == "":
		fmt.Fprintf(&p.out, "error: %v\n", err)
	case err != nil && errors.Is(err, protocol.ErrLimit) != (want == "expect-limit"):
		fmt.Fprintf(&p.out, "error: of the other kind: %v\n", err)
	}
	s.over = err != nil
	if s.over {
		return nil
	}
	s.opened[t.URL] = true
	p.note(s)
	return nil
}
