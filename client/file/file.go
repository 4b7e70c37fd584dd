// Package file is a transport of package client that reads a DiscoveryResponse from a file, and again
// when the file changes. It never writes. Resources are decoded with the descriptors of Envoy's API and
// of the program ([Options]).
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

// A Resolver finds the types of messages in resources.
type Resolver interface {
	protoregistry.ExtensionTypeResolver
	protoregistry.MessageTypeResolver
}

// Options are the options of a transport. The zero value is ready to use.
type Options struct {
	// WatchedDirectory is another directory whose changes cause the file to be read again, like
	// watched_directory of a PathConfigSource. It is rarely needed, because all symbolic links on the
	// way to the file are watched. Empty: none.
	WatchedDirectory string

	// Poll is the longest time between two reads of the file, for filesystems that do not notify of
	// changes, such as some network filesystems. Zero: 30 s.
	Poll time.Duration

	// MaxFile is the maximum size of the file in bytes. Zero: 256 MiB.
	MaxFile int64

	// Resolver finds message types. Types that it does not know are looked for in Envoy's API. Nil:
	// [protoregistry.GlobalTypes], the types linked into the program.
	Resolver Resolver

	// ResourceName is the same option as in [client.GRPCOptions].
	ResourceName func(t *xds.Type, body []byte) string

	// Log receives a line when changes may be noticed late. Nil: nothing is logged.
	Log *slog.Logger
}

// New returns a transport for a file. The extension of its name gives the format: .pb (encoded), .json,
// .yaml or .yml, .pb_text, .txtpb or .textproto. The file need not exist yet. Each stream is for one
// type, the type of the resources in the file.
//
// A stream reads the file when the file exists and no program is writing to it. After a change the
// stream waits a moment, and uses the content only if the content is stable. Replacing the file, or
// a symbolic link on the way to it, is also a change. If the file is missing, empty or not
// readable, or a resource in it is not readable, the response has Malformed errors. A client
// refuses such a response and keeps the last good resources. Each content is sent once, and again
// when the client subscribes to other names.
func New(path string, o Options) (client.Transport, error) {
	form := formats[strings.ToLower(filepath.Ext(path))]
	switch {
	case path == "":
		return nil, errors.New("the path is empty")
	case form == nil:
		return nil, fmt.Errorf("%s: the name must end with %s", path, strings.Join(extensions(), ", "))
	}
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.MaxFile = cmp.Or(o.MaxFile, 256<<20)
	if o.Resolver == nil {
		o.Resolver = protoregistry.GlobalTypes
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	t := &transport{options: o, path: path, format: form, watcher: watch.NewWatcher}
	t.ctx, t.close = context.WithCancelCause(context.Background())
	return t, nil
}

type transport struct {
	options Options
	path    string
	format  func(*decoder)
	ctx     context.Context // ends with Close
	close   context.CancelCauseFunc

	mu      sync.Mutex     // held so that no stream opens while Close starts
	streams sync.WaitGroup // streams with an open watcher

	watcher func(*slog.Logger, time.Duration) *watch.Watcher // tests replace it
}

var errClosed = errors.New("the transport is closed")

func (t *transport) Variant() xds.Variant { return xds.SotW }
func (t *transport) Aggregated() bool     { return false }
func (t *transport) String() string       { return "file:" + t.path }

// Close ends the streams and waits for their watchers.
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

// extensions returns the known extensions of file names.
func extensions() []string {
	var all []string
	for end := range formats {
		all = append(all, end)
	}
	slices.Sort(all)
	return all
}
