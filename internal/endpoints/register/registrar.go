// Package register keeps what a server has registered of an owner as that owner wants it, for as long as it runs: over a stream of
// the admin API, which is opened again whenever it ends.
//
// An owner has the registrations whose IDs begin with its name and a slash. Others are left alone, and
// so is what the owner has registered of clusters that are not told with [Registrar.Set].
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

// A Part is what an owner has of a cluster.
type Part struct {
	Group   string // of resources; "": default
	Cluster string
	Owner   string
}

// Options of a registrar. The zero value is ready to use.
type Options struct {
	// TTL is the time of the lease under which all is registered; none if zero: what is registered outlives the program.
	TTL time.Duration
	// Log is told whether the server is there, and of what it does not take; slog.Default() if nil.
	Log *slog.Logger
}

// A Registrar registers. It is made by [New], and may be used by several goroutines at once.
type Registrar struct {
	server *adminclient.Client
	opts   Options
	bell   chan struct{}

	mu    sync.Mutex                       // guards what follows; held for memory only
	want  map[Part]map[string]api.Endpoint // by ID
	other map[Part]bool                    // of which something else is wanted than before
}

// New returns a registrar at a server.
func New(server *adminclient.Client, o Options) *Registrar {
	o.Log = cmp.Or(o.Log, slog.Default())
	return &Registrar{server: server, opts: o, bell: make(chan struct{}, 1), want: map[Part]map[string]api.Endpoint{}, other: map[Part]bool{}}
}

// Set says which endpoints an owner wants a cluster to have from now on: those, and no others. They get IDs by
// their addresses.
func (r *Registrar) Set(p Part, all []api.Endpoint) {
	by := make(map[string]api.Endpoint, len(all))
	for _, e := range all {
		e.ID = p.Owner + "/" + net.JoinHostPort(e.Address, strconv.Itoa(e.Port))
		by[e.ID] = e
	}
	r.mu.Lock()
	r.want[p], r.other[p] = by, true
	r.mu.Unlock()
	select {
	case r.bell <- struct{}{}:
	default:
	}
}

// Registered asks the server what it has of an owner in a cluster.
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

// Await is Registered that waits for a server that is away. The error is one of [Refusing], or that ctx is done.
func (r *Registrar) Await(ctx context.Context, p Part) (all []api.Endpoint, err error) {
	err = r.await(ctx, func() (err error) {
		all, err = r.Registered(ctx, p)
		return err
	})
	return all, err
}

// Clusters returns those of a group in which an owner has endpoints. It waits as [Registrar.Await] does.
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

// await asks until there is an answer.
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
			r.opts.Log.Warn("server of endpoints does not answer yet", "server", r.server.URL(), "error", err)
		}
		away = true
		rest(ctx, pause)
	}
}

// rest waits for a time, more or less.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause/2 + rand.N(pause)):
	case <-ctx.Done():
	}
}

const (
	answerTime = 30 * time.Second // for an answer
	beatTime   = 10 * time.Second // between lines when there is nothing to say
	batch      = 500              // lines that are sent before an answer
	firstPause = 200 * time.Millisecond
	lastPause  = 10 * time.Second
)

// Refusing reports whether an error says that the server lets nobody in, or takes no endpoints: who asks again gets the same.
func Refusing(err error) bool {
	refused, is := errors.AsType[*adminclient.Refused](err)
	return is && slices.Contains([]int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound}, refused.Code)
}

// Run registers until ctx is done, and returns nil then; or until the server says at the first try that it lets nobody
// in or takes no endpoints, which is the error.
func (r *Registrar) Run(ctx context.Context) error {
	pause, ever, away := firstPause, false, false
	for {
		began := false
		err := r.session(ctx, func() {
			began, ever, away = true, true, false
			r.opts.Log.Info("endpoints are registered at the server", "server", r.server.URL())
		})
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		if !ever && Refusing(err) {
			return err
		}
		if !away {
			r.opts.Log.Warn("cannot register endpoints at the server: it keeps the earlier ones", "server", r.server.URL(), "error", err)
		}
		if away = true; began {
			pause = firstPause
		}
		rest(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}
