package explain

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A fixture is a directory, an in-memory server that serves it, and an explainer.
type fixture struct {
	testing.TB
	dir  string
	src  *dir.Source
	st   *store.Store
	seen *tracker
	conn *grpc.ClientConn
	deps Deps
	late time.Duration // how much later the explainer's clock is
	*Explainer
}

// start serves files, given as pairs of name and content.
func start(t testing.TB, files ...string) *fixture {
	t.Helper()
	r := &fixture{TB: t, dir: t.TempDir(), st: store.New(), seen: &tracker{}}
	r.src = dir.New(r.dir, r.st, dir.Options{Log: slog.New(slog.DiscardHandler)})
	r.write(files...)
	r.load("")
	s := server.New(r.st, server.WithObserver(r.seen), server.WithLogger(slog.New(slog.DiscardHandler)))
	r.conn = xdstest.Serve(t, s)
	r.deps = Deps{
		Tracker: r.seen, Source: r.src, Snapshot: r.st.Snapshot,
		Selected: func() []*server.Stream { return r.seen.Streams("") },
		Now:      func() time.Time { return time.Now().Add(r.late) },
	}
	r.Explainer = New(r.deps)
	return r
}

func (r *fixture) write(files ...string) {
	r.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(r.dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[i+1]), 0o600); err != nil {
			r.Fatal(err)
		}
	}
}

func (r *fixture) remove(file string) {
	r.Helper()
	if err := os.Remove(filepath.Join(r.dir, file)); err != nil {
		r.Fatal(err)
	}
}

// load loads the files and checks the error.
func (r *fixture) load(want string) {
	r.Helper()
	_, err := r.src.Load()
	switch {
	case err == nil && want != "":
		r.Fatalf("loaded without %q", want)
	case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
		r.Fatalf("loaded: %v", err)
	}
}

func (r *fixture) node(id string) xdstest.Option {
	return xdstest.WithNode(xds.Node{ID: id, UserAgentName: "envoy", UserAgentVersion: "1.40.0"})
}

// explain explains a resource such as "CDS a", and returns the links and the advice as text. Paths are
// relative.
func (r *fixture) explain(node, what string) (api.Explanation, string) {
	r.Helper()
	typ, name, _ := strings.Cut(what, " ")
	x, err := r.Explain(context.Background(), node, typ, name)
	if err != nil {
		r.Fatal(err)
	}
	return x, r.text(x)
}

func (r *fixture) text(x api.Explanation) string {
	var b strings.Builder
	for _, l := range x.Links {
		mark := "?"
		if l.Known && l.OK {
			mark = "ok"
		} else if l.Known {
			mark = "BROKEN"
		}
		b.WriteString(l.Name + ": " + mark + ": " + l.Text)
		if l.Place != "" {
			b.WriteString(" [" + l.Place + "]")
		}
		b.WriteByte('\n')
	}
	b.WriteString("broken: " + x.Broken + "\nadvice: " + x.Advice + "\n")
	return strings.ReplaceAll(b.String(), r.dir+"/", "")
}

// A tracker remembers streams and their last state.
type tracker struct {
	mu      sync.Mutex
	streams []*server.Stream
	nacks   map[*server.Stream]map[string]*api.NackedStatus
	left    map[string]api.Left
	loop    string // text of the trouble of all clients; "": none
}

func (t *tracker) Opened(s *server.Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams = append(t.streams, s)
}

func (t *tracker) Event(s *server.Stream, e protocol.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Kind != protocol.Nacked {
		return
	}
	if t.nacks == nil {
		t.nacks = map[*server.Stream]map[string]*api.NackedStatus{}
	}
	if t.nacks[s] == nil {
		t.nacks[s] = map[string]*api.NackedStatus{}
	}
	t.nacks[s][e.Type.URL] = &api.NackedStatus{Since: time.Now(), Error: e.Error.Message, Nonce: e.Nonce}
}

func (t *tracker) Closed(s *server.Stream, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams = slices.DeleteFunc(t.streams, func(o *server.Stream) bool { return o == s })
	if t.left == nil {
		t.left = map[string]api.Left{}
	}
	t.left[s.Node.ID] = api.Left{At: time.Now(), Code: status.Code(err).String(), Why: "gone"}
}

func (t *tracker) refuse(node, code, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = map[string]api.Left{node: {At: time.Now(), Code: code, Why: why}}
}

func (t *tracker) Client(node string) (all []api.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.streams {
		if s.Node.ID != node {
			continue
		}
		c := api.Client{Node: node, Since: s.Since}
		for url, nack := range t.nacks[s] {
			c.Types = append(c.Types, api.TypeStatus{URL: url, Stream: s.ID, Nacked: nack})
		}
		all = append(all, c)
	}
	if l, ok := t.left[node]; ok && all == nil {
		all = append(all, api.Client{Node: node, Left: &l})
	}
	if t.loop != "" {
		all[0].Troubles = []api.Trouble{{Code: "flaps", Text: "it flaps"}, {Code: api.DisconnectLoop, Text: t.loop}}
	}
	return all
}

func (t *tracker) Streams(node string) (all []*server.Stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.streams {
		if node == "" || s.Node.ID == node {
			all = append(all, s)
		}
	}
	return all
}

func (t *tracker) Nodes(string, int) (all []string) {
	for _, s := range t.Streams("") {
		all = append(all, s.Node.ID)
	}
	return all
}

// within runs a test in a synctest bubble.
func within(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}
