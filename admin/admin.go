// Package admin gives a program with the library the admin API of the chancery command: the state of each client, the
// reason why a client has or lacks a resource, a web page, CSDS, and a quarantine for refused resources. The commands
// chancery status, explain, get, watch and wait work with such a program.
//
// A Server belongs to one store and one [server.Server]. It is the source of that server, and observes its streams:
//
//	st := store.New()
//	a := admin.New(st, admin.Options{})
//	s := server.New(a, a.ServerOptions()...)
//	go a.Run(ctx)
//	go a.Serve(ctx, l) // l listens on 127.0.0.1:18001, where commands look
//
// # What the program decides
//
//   - The address. Everybody who reaches it sees all nodes and resources, and may send clients their resources again.
//     Choose the loopback or a unix socket, unless callers authenticate.
//   - The credentials. On other addresses a request needs [Options.Token] or a client certificate that TLS has
//     verified. Without either the Server refuses it.
//   - TLS. Without it, the network can read the token and all answers.
//
// The rules for Host and Origin, which keep web pages of other sites out, always hold: see docs/admin-api.md.
//
// # What the program may lack
//
// A program may lack files to load, registered endpoints or a store of revisions. Then their paths answer with an error
// that names the missing part. Answers contain no secrets: bodies of resources are redacted, and the error text of
// a client is shown without the secrets of the resources that clients were sent.
package admin

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
	"weak"

	adminapi "github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/explain"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// Options configure a Server. The zero value is ready to use. The functions must be safe for concurrent use and must
// not block.
type Options struct {
	// Name is the name of the program or replica in status. "": the name of the executable.
	Name string

	// Token returns the bearer token that requests must have, except on unix sockets. The Server calls it for each
	// request, so a new token is valid at once. If it fails, the Server refuses all requests. Nil: no token.
	Token func() (string, error)

	// CallersAuthenticated is for a program that authenticates callers before it calls Handler. Then requests from
	// other machines need neither a token nor a client certificate.
	CallersAuthenticated bool

	// TLS is the configuration of [Server.Serve], except on unix sockets. Nil: plain text.
	TLS *tls.Config

	// Source opens the watches of the server: see [SourceOf]. Nil: the store.
	Source server.Source[server.Watch]

	// WithoutQuarantine sends resources that a client refuses as they are. Otherwise the client gets the last version
	// that it accepted in place of a refused resource, so that one bad resource does not block the others.
	WithoutQuarantine bool

	// Place returns the origin of a resource that a node gets, such as "customers/17"; "": unknown. The node is empty
	// for a question that is about no node. Nil: the place in Files, if the program has files.
	Place func(n *xds.Node, t *xds.Type, name string) string

	// Files fills the store, perhaps together with the program. Status then shows its warnings and rejected loads, and
	// chancery reload --server loads it again. Its Options.Group must be empty. Nil: there are no files.
	Files *dir.Source

	// Types are the message types of resources, to show and to check them. Nil: those of Files, or of Envoy's API.
	Types *dir.Types

	// Level is the level of the program's log, which PUT /api/v1/log changes. Nil: callers cannot change it.
	Level *slog.LevelVar

	// Log receives warnings, such as about a resource in quarantine. Nil: slog.Default().
	Log *slog.Logger
}

// A Server serves the admin API of one xDS server. Create it with [New]. It is safe for concurrent use.
type Server struct {
	o        Options
	store    *store.Store
	source   server.Source[server.Watch]
	parts    *wiring.Parts
	api      *adminapi.Server
	origin   *origin
	redactor *redactor
	counted  counts
	limit    *listen.Limit // of connections, for all listeners of Serve
	sent     chan struct{} // has one slot: a response was sent, perhaps of a new commit
	seen     progress      // owned by Run
}

// groupTime is the time over which a command for a group spreads its streams.
const groupTime = 5 * time.Second

// maxConnections is the maximum number of connections of Serve: a new one replaces the oldest of the owner that has
// most.
const maxConnections = 256

// New returns a Server for the resources of a store, which must not be nil. It starts nothing: see [Server.Run].
func New(st *store.Store, o Options) *Server {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Name = cmp.Or(o.Name, executable())
	if o.Files != nil {
		o.Types = cmp.Or(o.Types, o.Files.Types())
	}
	o.Types = cmp.Or(o.Types, envoy.Envoy())
	s := &Server{o: o, store: st, source: o.Source, sent: make(chan struct{}, 1), limit: listen.NewLimit(maxConnections)}
	if s.source == nil {
		s.source = SourceOf(st)
	}
	s.origin = newOrigin(st, &s.o)
	s.redactor = newRedactor(st, o.Types)
	s.source = shown{s.source, s.redactor}
	wired := wiring.Options{Log: o.Log, Types: o.Types, Snapshot: st.Snapshot, Newest: st.Newest, Source: func() explain.Source { return s.origin }, Place: s.origin.place}
	if !o.WithoutQuarantine {
		wired.Withholds = s.source
	}
	s.parts = wiring.New(wired)
	s.api = s.parts.Server(explain.Deps{Source: s.origin, Program: o.Files == nil})
	s.api.About = api.Server{Version: version(), Replica: o.Name, Since: time.Now(), PID: os.Getpid()}
	s.api.About.Host, _ = os.Hostname()
	s.api.Version = api.VersionInfo{Version: version(), Go: runtime.Version()}
	s.api.Config, s.api.Groups, s.api.Reload = s.config, s.groups, s.reload
	s.api.Level, s.api.GroupTime = o.Level, groupTime
	s.api.Token, s.api.TLS = o.Token, o.TLS
	return s
}

// executable returns the name of the program.
func executable() string { return filepath.Base(os.Args[0]) }

// version returns the version of the library.
func version() string {
	const unknown = "(devel)" // as Go prints it
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	const path = "github.com/chancery-xds/chancery"
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == path {
			return cmp.Or(m.Version, unknown)
		}
	}
	return unknown
}

// SourceOf returns a source for [Options.Source], such as one of package lazy that wraps the store of the program.
func SourceOf[W server.Watch](src server.Source[W]) server.Source[server.Watch] {
	return opened[W]{src}
}

type opened[W server.Watch] struct{ src server.Source[W] }

func (o opened[W]) Watch(ctx context.Context, node *xds.Node) (server.Watch, error) {
	w, err := o.src.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// A shown source opens watches that show their views to a redactor.
type shown struct {
	of server.Source[server.Watch]
	r  *redactor
}

func (s shown) Watch(ctx context.Context, node *xds.Node) (server.Watch, error) {
	w, err := s.of.Watch(ctx, node)
	if err != nil {
		return nil, err
	}
	return &shownWatch{Watch: w, r: s.r, before: map[string]weak.Pointer[xds.Table]{}}, nil
}

// Watch implements [server.Source]: the Server is the source of the xDS server, so that the quarantine can withhold
// refused resources.
func (s *Server) Watch(ctx context.Context, node *xds.Node) (server.Watch, error) {
	s.origin.follow(ctx, node)
	if s.parts.Held != nil {
		return s.parts.Held.Watch(ctx, node)
	}
	return s.source.Watch(ctx, node)
}

// ServerOptions returns the options of the xDS server: they let the Server observe the streams, and give the log the
// origin of refused resources and error texts without secrets. The program's own observers, such as metrics, are
// arguments, because a server has one observer.
func (s *Server) ServerOptions(more ...server.Observer) []server.Option {
	all := []server.Observer{s.parts.Tracker, bell{s.sent}}
	if s.parts.Held != nil {
		all = append(all, s.parts.Held)
	}
	return []server.Option{
		server.WithObserver(server.Observers(append(all, more...)...)),
		server.WithPlaces(s.origin.place), server.WithSuspects(s.parts.Suspects), server.WithRedactor(s.redactor.redact),
	}
}

// Run examines refusals for the quarantine, records commits, and carries out commands for groups, until ctx is done.
// Call it once. Without it, clients get no resource that another resource of their response blocks.
func (s *Server) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { s.api.RunGroupCommands(ctx) })
	if s.parts.Held != nil {
		running.Go(func() { s.parts.Held.Run(ctx) })
	}
	s.follow(ctx)
}

// Serve answers requests on a listener until ctx is done: HTTP/1.1 and HTTP/2, and gRPC for CSDS. It closes the
// listener. It returns nil after ctx is done. Before it serves, it returns an error if other machines can reach the
// listener and callers need no credential. It may be called for several listeners, which have 256 connections in all.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if !listen.Loopback(l.Addr()) && s.o.Token == nil && !s.o.CallersAuthenticated && (s.o.TLS == nil || s.o.TLS.ClientAuth != tls.RequireAndVerifyClientCert) {
		_ = l.Close()
		return errors.New("admin: other machines can reach " + l.Addr().String() + ": set Options.Token or require client certificates, or listen on the loopback or a unix socket")
	}
	return s.api.Serve(ctx, s.limit.On(l))
}
