// Package register keeps endpoints registered at a server, over a stream of the admin API that it opens
// again whenever it ends. It is the client of package endpoints.
//
// An owner is identified by a name. It owns the registrations whose IDs begin with that name and a slash.
// Registrations of changed owners stay untouched, as do those of clusters that were not passed to
// [Registrar.Set].
package register

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// A Part identifies the registrations of an owner in a cluster.
type Part struct {
	Group   string // the group of resources; "": default
	Cluster string
	Owner   string
}

// Options of a registrar. The zero value is ready to use.
type Options struct {
	// TTL is the time of the lease of all registrations. Zero means no lease: the registrations outlive
	// the program.
	TTL time.Duration
	// Log gets the state of the connection, and refused endpoints; slog.Default() if nil.
	Log *slog.Logger
}

// A Registrar keeps endpoints registered. It is made by [New]. Several goroutines may use it at once.
type Registrar struct {
	server *adminclient.Client
	opts   Options
	bell   chan struct{}

	mu      sync.Mutex                       // guards the fields below; held for memory only
	want    map[Part]map[string]api.Endpoint // by ID
	changed map[Part]bool                    // parts whose wanted endpoints have changed
	fault   string                           // why the wanted endpoints may be old; "": they are not
}

// New returns a registrar at a server.
func New(server *adminclient.Client, o Options) *Registrar {
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Registrar{server: server, opts: o, bell: make(chan struct{}, 1), want: map[Part]map[string]api.Endpoint{}, changed: map[Part]bool{}}
}

// Set sets the endpoints that an owner wants in a cluster, and replaces earlier ones. Their IDs are
// derived from their addresses.
func (r *Registrar) Set(p Part, all []api.Endpoint) {
	by := make(map[string]api.Endpoint, len(all))
	for _, e := range all {
		e.ID = p.Owner + "/" + net.JoinHostPort(e.Address, strconv.Itoa(e.Port))
		by[e.ID] = e
	}
	r.mu.Lock()
	r.want[p], r.changed[p] = by, true
	r.mu.Unlock()
	r.ring()
}

// Fault makes the status of the server show why the wanted endpoints may be old; "": they are not. It does not block.
func (r *Registrar) Fault(why string) {
	r.mu.Lock()
	r.fault = why
	r.mu.Unlock()
	r.ring()
}

func (r *Registrar) ring() {
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Registered returns the registrations of an owner in a cluster, from the server.
func (r *Registrar) Registered(ctx context.Context, p Part) ([]api.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := r.server.Endpoints(ctx, cmp.Or(p.Group, "default"), p.Cluster)
	if refused, is := errors.AsType[*adminclient.Refused](err); is && refused.Code == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []api.Endpoint
	for _, c := range list.Items {
		for _, e := range c.Endpoints {
			if strings.HasPrefix(e.ID, p.Owner+"/") {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// Await is like Registered, but waits for a server that does not answer. An error is one of [Refusing],
// or ctx is done.
func (r *Registrar) Await(ctx context.Context, p Part) (all []api.Endpoint, err error) {
	err = r.await(ctx, func() (err error) {
		all, err = r.Registered(ctx, p)
		return err
	})
	return all, err
}

// Clusters returns the clusters of a group in which an owner has endpoints. It waits like
// [Registrar.Await].
func (r *Registrar) Clusters(ctx context.Context, group, owner string) (all []string, err error) {
	err = r.await(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		list, err := r.server.Endpoints(ctx, cmp.Or(group, "default"), "")
		if err != nil {
			return err
		}
		all = nil
		for _, c := range list.Items {
			there, err := r.Registered(ctx, Part{group, c.Cluster, owner})
			if err != nil {
				return err
			}
			if len(there) > 0 {
				all = append(all, c.Cluster)
			}
		}
		return nil
	})
	return all, err
}

// await calls ask until it succeeds.
func (r *Registrar) await(ctx context.Context, ask func() error) error {
	for pause, away := firstPause, false; ; pause = min(2*pause, lastPause) {
		err := ask()
		if err == nil || Refusing(err) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !away {
			r.opts.Log.Warn("endpoint server does not answer yet", "server", r.server.URL(), "error", err)
		}
		away = true
		rest(ctx, pause)
	}
}

// rest waits for about the given time.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause/2 + rand.N(pause)):
	case <-ctx.Done():
	}
}

const (
	answerTime = 30 * time.Second // for an answer
	beatTime   = 10 * time.Second // between lines when nothing changes
	batch      = 500              // lines that are sent before an answer
	firstPause = 200 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Refusing reports whether the server denies access, or does not accept endpoints. A retry would get the
// same error.
func Refusing(err error) bool {
	refused, is := errors.AsType[*adminclient.Refused](err)
	return is && slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, refused.Code)
}

// Run keeps the endpoints registered until ctx is done; then it returns nil. It returns an error if the
// first attempt fails with one of [Refusing].
func (r *Registrar) Run(ctx context.Context) error {
	pause, ever, away := firstPause, false, false
	for {
		began := false
		err := r.session(ctx, func() {
			began, ever, away = true, true, false
			r.opts.Log.Info("endpoints are registered at the server", "server", r.server.URL())
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // ctx is done
		}
		if !ever && Refusing(err) {
			return err
		}
		if !away {
			r.opts.Log.Warn("cannot register endpoints at the server: it keeps the earlier ones", "server", r.server.URL(), "error", err)
		}
		away = true
		if began {
			pause = firstPause
		}
		rest(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}
