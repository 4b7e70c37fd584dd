// Package file is a transport of package client over the filesystem: a file holds a
// DiscoveryResponse, and is read again when it has changed. It writes nothing. Resources are read
// by their descriptors, those of Envoy's API or those that the program brings ([Options]).
package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/disk/watch"
	"github.com/chancery-xds/chancery/xds"
)

// A Resolver finds the messages that resources are, and those inside them.
type Resolver interface {
	protoregistry.ExtensionTypeResolver
	protoregistry.MessageTypeResolver
}

// Options of a transport. The zero value is ready to use.
type Options struct {
	// Watched is a directory whose changes have the file read again, as watched_directory of a
	// PathConfigSource, besides those of the path. It is rarely needed: symbolic links are followed
	// anyway, and each of them is watched. Empty: none.
	Watched string

	// Poll is how long a file is not looked at though nothing hints at a change: some network
	// filesystems hint at none. Zero: 30 s.
	Poll time.Duration

	// MaxFile is the largest file in bytes. Zero: 256 MiB.
	MaxFile int64

	// Resolver finds messages. Those that it does not know are looked for in Envoy's API. Nil:
	// [protoregistry.GlobalTypes], those that are linked.
	Resolver Resolver

	// Name is as in [client.GRPCOptions].
	Name func(t *xds.Type, body []byte) string

	// Log is told when changes may be noticed late. Nil: nobody is.
	Log *slog.Logger
}

// New returns a transport of the file at a path. The end of its name says how it is written: .pb
// (encoded), .json, .yaml or .yml, .pb_text, .txtpb or .textproto. It need not exist yet. Each
// stream is of one type, that of the response in the file.
//
// A stream takes the file when it is there and for a while was not written to: it waits for the
// end of a write in place, and reads what came of it twice. The file that was replaced by another
// one, or by a symbolic link on the way to it that leads elsewhere now, has changed, too. A file
// that cannot be read, is empty or is gone, and a resource in it that cannot be read, is a
// response with Malformed, which a client refuses: what was good stays. What is in the file is
// told once, and again to names that are asked for later.
func New(path string, o Options) (client.Transport, error) {
	form := forms[strings.ToLower(filepath.Ext(path))]
	switch {
	case path == "":
		return nil, errors.New("the path is empty")
	case form == nil:
		return nil, fmt.Errorf("%s: the name must end with %s", path, strings.Join(endings(), ", "))
	}
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.MaxFile = cmp.Or(o.MaxFile, 256<<20)
	if o.Resolver == nil {
		o.Resolver = protoregistry.GlobalTypes
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	t := &transport{options: o, path: path, form: form, watcher: watch.NewWatcher}
	t.ctx, t.close = context.WithCancelCause(context.Background())
	return t, nil
}

type transport struct {
	options Options
	path    string
	form    func(*decoder)
	ctx     context.Context // ends with Close
	close   context.CancelCauseFunc

	mu      sync.Mutex     // no stream opens while Close begins
	streams sync.WaitGroup // those whose watcher is open

	watcher func(*slog.Logger, time.Duration) *watch.Watcher // tests replace it
}

var errClosed = errors.New("the transport is closed")

func (t *transport) Variant() xds.Variant { return xds.SotW }
func (t *transport) Aggregated() bool     { return false }
func (t *transport) String() string       { return "file:" + t.path }

// Close ends the streams, and waits for their watchers.
func (t *transport) Close() error {
	t.mu.Lock()
	t.close(errClosed)
	t.mu.Unlock()
	t.streams.Wait()
	return nil
}

func (t *transport) Open(ctx context.Context, only *xds.Type) (client.Stream, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case only == nil:
		return nil, fmt.Errorf("%s: a file needs a type", t)
	case t.ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", t, errClosed)
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { end(errClosed) })
	s := &stream{transport: t, only: only, ctx: ctx, asked: make(chan struct{}, 1), watcher: t.watcher(t.options.Log, t.options.Poll)}
	t.streams.Add(1)
	context.AfterFunc(ctx, func() {
		defer t.streams.Done()
		stop()
		s.watcher.Close()
	})
	return s, nil
}

// endings returns the ends of names that say how a file is written.
func endings() []string {
	var all []string
	for end := range forms {
		all = append(all, end)
	}
	slices.Sort(all)
	return all
}
