package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	textutil "github.com/chancery-xds/chancery/internal/text"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/clients"
	authcerts "github.com/chancery-xds/chancery/internal/auth/certs"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/metrics"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// AdminAddress is where commands look for a server if nobody says where it is.
const AdminAddress = "127.0.0.1:18001"

// maxAdmins is how many connections the admin API has at most.
const maxAdmins = 256

// An adminFront is where the admin API is served, and how.
type adminFront struct {
	addresses []string
	token     string // the file with it; "": none is needed
	tls       authcerts.Files

	chosen    bool // somebody said where, or who may ask: it must be served
	parsed    []listen.Address
	listeners []net.Listener
	limit     *listen.Limit
	certs     *authcerts.Source // nil: no TLS
	tracker   *clients.Tracker  // of all clients; told of them if the API is served
	rejected  atomic.Pointer[api.Rejected]
	alone     atomic.Pointer[[]api.Rejected] // groups that the last load left as they were
	noted     uint64                         // the last commit that was; of the goroutine that loads
}

func (a *adminFront) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&a.addresses, "admin-listen", []string{AdminAddress}, "`HOST:PORT` or unix:///PATH to serve the admin API on, which shows what each client has; may be repeated; empty: no admin API")
	f.Lookup("admin-listen").DefValue = AdminAddress // without brackets
	f.StringVar(&a.token, "admin-token-file", "", "`FILE` with a token that requests of the admin API must have, except on unix sockets (Authorization: Bearer TOKEN)")
	f.StringVar(&a.tls.Cert, "admin-tls-cert", "", "`FILE` with the certificate of the admin API, in PEM; turns TLS on")
	f.StringVar(&a.tls.Key, "admin-tls-key", "", "`FILE` with its private key")
	f.StringVar(&a.tls.ClientCA, "admin-client-ca", "", "`FILE` with the CA that the certificates of those who ask must chain to (mutual TLS)")
}

// guarded reports whether those who ask must show who they are. Whoever had the port instead
// would be shown their tokens, and answer them what he likes.
func (a *adminFront) guarded() bool { return a.token != "" || a.tls.Configured() }

// check parses the addresses; an error is one of usage.
func (a *adminFront) check() error {
	for _, s := range a.addresses {
		if s == "" {
			continue
		}
		at, err := listen.Parse(s)
		if err != nil {
			return fmt.Errorf("--admin-listen: %w", err)
		}
		a.parsed = append(a.parsed, at)
	}
	if a.tls.Configured() && (a.tls.Cert == "" || a.tls.Key == "") {
		return errors.New("TLS of the admin API needs both --admin-tls-cert and --admin-tls-key; --admin-client-ca needs them, too")
	}
	for _, at := range a.parsed {
		if !at.Loopback() && a.token == "" && a.tls.ClientCA == "" {
			return fmt.Errorf("--admin-listen: %s can be reached from other machines: give --admin-token-file or --admin-client-ca, so that not everybody may ask", at)
		}
	}
	return nil
}

// open listens. That another server on this machine has the port that nobody asked for must
// keep none from serving.
func (a *adminFront) open(log *slog.Logger, most int) error {
	if len(a.parsed) == 0 {
		return nil
	}
	if a.token != "" {
		if _, err := readToken(a.token); err != nil {
			return cli.Fail(err, "")
		}
	}
	if a.tls.Configured() {
		var err error
		if a.certs, err = authcerts.Open(a.tls, log); err != nil {
			return cli.Fail(err, "")
		}
	}
	a.limit = listen.NewLimit(max(16, min(maxAdmins, most)))
	for _, at := range a.parsed {
		l, err := at.Open(context.Background())
		switch {
		case err != nil && !a.chosen:
			log.Warn("the admin API is not served", "error", err, "hint", "--admin-listen chooses another address")
			continue
		case err != nil:
			a.close()
			return cli.Fail(err, "--admin-listen chooses another address")
		}
		a.listeners = append(a.listeners, a.limit.On(l))
		if !listen.Loopback(l.Addr()) && !a.tls.Configured() {
			log.Warn("the admin API sends and gets everything in plain text, the token included", "http", l.Addr().String(), "hint", "--admin-tls-cert, --admin-tls-key")
		}
	}
	return nil
}

// serve answers until ctx is done.
func (a *adminFront) serve(ctx context.Context, running *sync.WaitGroup, s *admin.Server) {
	if a.token != "" {
		s.Token = func() (string, error) { return readToken(a.token) }
	}
	if a.certs != nil {
		s.TLS = webTLS(a.certs.Config())
	}
	for i, l := range a.listeners {
		running.Go(func() {
			if err := s.Serve(ctx, l); err != nil {
				s.Log.Error("the listener of the admin API failed", "error", err)
			}
		})
		s.Log.Info("admin API", "http", a.at(i), "tls", a.certs != nil, "token", a.token != "")
	}
}

// at returns the address of a listener, its port chosen by the system included.
func (a *adminFront) at(i int) string {
	addr := a.listeners[i].Addr()
	if addr.Network() == "unix" {
		return "unix://" + addr.String()
	}
	return addr.String()
}

// close closes the listeners of a server that has not begun.
func (a *adminFront) close() {
	for _, l := range a.listeners {
		_ = l.Close()
	}
}

// track begins to follow clients. The source is there before the first of them.
func (a *adminFront) track(src func() *dir.Source, all func() *store.Snapshot, kept func(*server.Stream, *xds.Type) []api.Kept) {
	var expecting expecting
	a.tracker = clients.New(clients.Options{
		Groups: func(n *xds.Node) []string { return src().Decide(n).Groups },
		Place:  func(n *xds.Node, t *xds.Type, name string) string { return src().PlaceFor(n, t, name) },
		Identity: func(st *server.Stream) string {
			if st.Identity == nil {
				return ""
			}
			return st.Identity.String()
		},
		Kept: kept,
		Expects: func(n *xds.Node, t *xds.Type) bool {
			return !t.Is(xds.Endpoint) || expecting.endpoints(all(), src().Decide(n).Groups)
		},
	})
}

// standings are those of all clients, for who counts them.
func (a *adminFront) standings() iter.Seq[metrics.Standing] {
	return func(yield func(metrics.Standing) bool) {
		for c := range a.tracker.Census() {
			s := metrics.Standing{State: strings.ToLower(string(c.State)), Stale: c.Stale}
			if len(c.Groups) > 0 {
				s.Group = c.Groups[0]
			}
			if !yield(s) {
				return
			}
		}
	}
}

// loaded notes what became of a load.
func (a *adminFront) loaded(at time.Time, err error, st *store.Store) {
	kept, some := errors.AsType[dir.Kept](err)
	if err == nil || some {
		a.rejected.Store(nil)
		a.alone.Store(a.rejectedGroups(at, kept))
		a.tracker.Regroup()
		a.committed(st)
		if some {
			a.tracker.Note(api.Event{At: at, Kind: "reject", Count: len(kept), Text: clipped(kept.Problems())})
		}
		return
	}
	r := &api.Rejected{Since: at, Errors: problemsOf(err)}
	before := a.rejected.Load()
	if before != nil {
		r.Since = before.Since
	}
	a.rejected.Store(r)
	if before == nil || !slices.Equal(before.Errors, r.Errors) {
		a.tracker.Note(api.Event{At: at, Kind: "reject", Count: len(r.Errors), Text: clipped(r.Errors)})
	}
}

// rejectedGroups returns why groups stay as they were, and since when.
func (a *adminFront) rejectedGroups(at time.Time, kept dir.Kept) *[]api.Rejected {
	var before, now []api.Rejected
	if was := a.alone.Load(); was != nil {
		before = *was
	}
	for _, g := range kept {
		r := api.Rejected{Group: g.Group, Since: at, Errors: problemsOf(g.Err)}
		if i := slices.IndexFunc(before, func(b api.Rejected) bool { return b.Group == g.Group }); i >= 0 {
			r.Since = before[i].Since
		}
		now = append(now, r)
	}
	return &now
}

// committed tells of the commits since the last that was told.
func (a *adminFront) committed(st *store.Store) {
	for _, c := range st.Log() {
		if c.Seq <= a.noted || len(c.Changes) == 0 {
			continue
		}
		e := api.Event{At: c.Time, Kind: "commit", Version: strconv.FormatUint(c.Seq, 10)}
		if store.IsOverlay(c.Changes[0].Group) { // of registered endpoints, which may be a hundred a second
			continue
		}
		for _, ch := range c.Changes {
			e.Count += ch.Set
			e.Removed += ch.Removed
		}
		a.tracker.Note(e)
	}
	a.noted = st.Snapshot().Seq()
}

// clipped is the first of some texts, and how many more there are.
func clipped(all []string) string {
	if len(all) == 0 {
		return ""
	}
	text := textutil.Head(all[0], 500)
	if len(all) > 1 {
		text += fmt.Sprintf(" (and %d more)", len(all)-1)
	}
	return text
}

// problemsOf returns what is wrong with files, one thing each.
func problemsOf(err error) (all []string) {
	errs, ok := errors.AsType[dir.Errors](err)
	if !ok {
		return []string{err.Error()}
	}
	for _, e := range errs {
		all = append(all, e.Error())
	}
	return all
}

// config says what is served.
func (a *adminFront) config(st *store.Store, src *dir.Source) api.Config {
	sum := src.Summary()
	c := api.Config{Files: sum.Files, Groups: sum.Groups, Rejected: a.rejected.Load()}
	for _, n := range sum.Counts {
		c.Resources += n.N
	}
	c.Dangling, c.Doubts = sum.Dangling, findings.Count(sum.Warnings)
	for _, p := range sum.Warnings[:min(len(sum.Warnings), maxWarnings)] {
		p.Warning = false // its field says it
		c.Warnings = append(c.Warnings, api.Warning{Code: string(p.CodeOrOther()), Text: p.Error()})
	}
	if newest, ok := st.Newest(); ok {
		c.Revision, c.At = newest.Seq, &newest.Time
	}
	return c
}

// maxWarnings is how many warnings of the configuration are told.
const maxWarnings = 100

// Lengths of a token: a short one can be guessed.
const minToken, maxToken = 16, 4096

// readToken reads a token from its file. It is read for each request, so that a new one is
// taken at once.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--admin-token-file: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", fmt.Errorf("--admin-token-file: %w", err)
	}
	token := string(bytes.TrimSpace(b))
	switch {
	case len(b) > maxToken:
		return "", fmt.Errorf("--admin-token-file: %s has more than %d bytes", path, maxToken)
	case len(token) < minToken:
		return "", fmt.Errorf("--admin-token-file: the token in %s has %d bytes, but must have %d or more", path, len(token), minToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("--admin-token-file: the token in %s must be one word of ASCII characters", path)
	}
	return token, nil
}
