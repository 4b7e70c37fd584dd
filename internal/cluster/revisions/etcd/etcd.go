// Package etcd is an engine of package revisions in an etcd (3.4 or later): for several machines.
//
//	opts, err := etcd.Parse("etcd://e1:2379,e2:2379,e3:2379/prod")
//	opts.TLS = ... // and Username, Password, if the etcd asks for them
//	engine, err := etcd.Open(opts)
//	repo := revisions.Open(engine, revisions.Options{})
//
// All keys are below the prefix; so a role that may read and write these is enough. Reads are
// linearizable. What revisions need not any more, a sweep removes; that the etcd forgets it is up
// to its compaction (--auto-compaction-retention) and, of what is on its disks, defragmentation.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Options are where an etcd is, and who asks.
type Options struct {
	Endpoints []string // host:port of its members
	Prefix    string   // of all keys, without slashes around it

	TLS      *tls.Config // nil: none
	Username string      // "": nobody
	Password string

	// Timeout is how long a request may take. 0: 5 s.
	Timeout time.Duration

	dial []grpc.DialOption // of tests
}

// Parse reads etcd://HOST:PORT,HOST:PORT/PREFIX. A port may be missing: 2379. Users and passwords are
// not taken from there, since others see the arguments of programs.
func Parse(text string) (Options, error) {
	rest, ok := strings.CutPrefix(text, "etcd://")
	if !ok {
		return Options{}, fmt.Errorf("%q does not begin with etcd://", text)
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(hosts, "@") {
		return Options{}, errors.New("an etcd URL has no user and no password: others see the arguments of programs")
	}
	o := Options{Prefix: strings.Trim(prefix, "/")}
	if o.Prefix == "" || strings.ContainsAny(o.Prefix, "?#") || slices.Contains(strings.Split(o.Prefix, "/"), "") {
		return Options{}, fmt.Errorf("%q: want a prefix of the keys, as in etcd://HOST:PORT/PREFIX", text)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		u, err := url.Parse("etcd://" + host)
		if err != nil || u.Hostname() == "" || u.Host != host {
			return Options{}, fmt.Errorf("%q: %q is no host with a port", text, host)
		}
		o.Endpoints = append(o.Endpoints, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "2379")))
	}
	return o, nil
}

// String returns the options as a URL that [Parse] reads.
func (o Options) String() string { return "etcd://" + strings.Join(o.Endpoints, ",") + "/" + o.Prefix }

// An Engine keeps values in an etcd. It is made by [Open], and may be used by several goroutines at once.
type Engine struct {
	config  clientv3.Config
	prefix  string
	timeout time.Duration
	turn    chan struct{}                   // who has what is in it makes the client
	client  atomic.Pointer[clientv3.Client] // nil: there was no token for the user yet
	why     atomic.Pointer[string]          // no connection was made lately; nil: one was
}

// Open returns the engine in an etcd. It asks the etcd for nothing: what is wrong with that, or with the
// user, the first request says. Close ends it.
func Open(o Options) (*Engine, error) {
	scheme := "http://"
	if o.TLS != nil {
		scheme = "https://"
	}
	timeout := cmp.Or(o.Timeout, 5*time.Second)
	config := clientv3.Config{
		TLS: o.TLS, Username: o.Username, Password: o.Password,
		DialTimeout:       timeout * 9 / 10,                                        // of a token: what is wrong is said before a request's time is over
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second, // of what waits for something: an etcd ends the connection of who pings and asks nothing
		Logger: zap.NewNop(), DialOptions: o.dial,
	}
	for _, e := range o.Endpoints {
		config.Endpoints = append(config.Endpoints, scheme+e)
	}
	e := &Engine{config: config, prefix: o.Prefix + "/", timeout: timeout, turn: make(chan struct{}, 1)}
	e.config.DialOptions = append(slices.Clone(o.dial), grpc.WithChainUnaryInterceptor(e.note))
	e.turn <- struct{}{}
	if o.Username != "" {
		return e, nil // a token is asked for, and the etcd may be away
	}
	_, err := e.connected(context.Background())
	return e, err
}

// connected returns the client, which is made when the etcd has given a token to the user.
func (e *Engine) connected(ctx context.Context) (*clientv3.Client, error) {
	if c := e.client.Load(); c != nil {
		return c, nil
	}
	select {
	case <-e.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { e.turn <- struct{}{} }()
	if c := e.client.Load(); c != nil {
		return c, nil
	}
	config := e.config
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	config.Context = life
	c, err := clientv3.New(config)
	switch ours := stop(); {
	case err != nil && ours:
		end()
		return nil, err
	case err != nil:
		return nil, ctx.Err()
	case !ours:
		_ = c.Close()
		return nil, ctx.Err()
	}
	e.client.Store(c)
	return c, nil
}

// note notes why an answer did not come: the client says only that time was over.
func (e *Engine) note(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		e.why.Store(new(s.Message()))
	case codes.OK:
		e.why.Store(nil)
	}
	return err
}

// Client returns the client of the etcd, for what else is kept below the prefix. Close ends it. It waits for
// a token if there is a user, and returns an error if there is none yet.
func (e *Engine) Client(ctx context.Context) (*clientv3.Client, error) { return e.connected(ctx) }

// Prefix returns the prefix of all keys, without slashes around it.
func (e *Engine) Prefix() string { return strings.TrimSuffix(e.prefix, "/") }

// Close ends the connections, and all watches and leases. Nothing may be called after it.
func (e *Engine) Close() error {
	if c := e.client.Load(); c != nil {
		return c.Close()
	}
	return nil
}

// do calls f with what there is of time, and says of its error of which key it is.
func (e *Engine) do(ctx context.Context, key string, f func(ctx context.Context, c *clientv3.Client) error) error {
	limited, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	c, err := e.connected(limited)
	if err == nil {
		err = f(limited, c)
	}
	if why := e.why.Load(); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && why != nil {
		err = status.Error(codes.Unavailable, *why)
	}
	return failed(ctx, e.prefix+key, err)
}

// Get implements [revisions.Engine].
func (e *Engine) Get(ctx context.Context, key string) (value []byte, err error) {
	return value, e.do(ctx, key, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, e.prefix+key)
		if err == nil && len(r.Kvs) == 0 {
			return revisions.ErrNotFound
		}
		if err == nil {
			value = r.Kvs[0].Value
		}
		return err
	})
}

// PutIfAbsent implements [revisions.Engine].
func (e *Engine) PutIfAbsent(ctx context.Context, key string, value []byte) error {
	if len(value) > revisions.MaxValue {
		return fmt.Errorf("%s: %d bytes are %w", key, len(value), revisions.ErrTooLarge)
	}
	return e.do(ctx, key, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Txn(ctx).If(absent(e.prefix + key)).Then(clientv3.OpPut(e.prefix+key, string(value))).Commit()
		return err
	})
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// CompareAndSwap implements [revisions.Engine].
func (e *Engine) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	if len(value) > revisions.MaxValue {
		return fmt.Errorf("%s: %d bytes are %w", key, len(value), revisions.ErrTooLarge)
	}
	is := absent(e.prefix + key)
	if old != nil {
		is = clientv3.Compare(clientv3.Value(e.prefix+key), "=", string(old))
	}
	return e.do(ctx, key, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Txn(ctx).If(is).Then(clientv3.OpPut(e.prefix+key, string(value))).Commit()
		if err == nil && !r.Succeeded {
			return revisions.ErrConflict
		}
		return err
	})
}

// Delete implements [revisions.Engine].
func (e *Engine) Delete(ctx context.Context, keys ...string) error {
	for some := range slices.Chunk(keys, 100) { // an etcd takes 128 in a transaction unless it is told otherwise
		ops := make([]clientv3.Op, 0, len(some))
		for _, key := range some {
			ops = append(ops, clientv3.OpDelete(e.prefix+key))
		}
		if err := e.do(ctx, some[0], func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Txn(ctx).Then(ops...).Commit()
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// List implements [revisions.Engine].
func (e *Engine) List(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		end := clientv3.GetPrefixRangeEnd(e.prefix + prefix)
		for from := e.prefix + prefix; ; {
			var r *clientv3.GetResponse
			err := e.do(ctx, prefix, func(ctx context.Context, c *clientv3.Client) (err error) {
				r, err = c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1000))
				return err
			})
			if err != nil {
				yield("", err)
				return
			}
			for _, kv := range r.Kvs {
				if !yield(strings.TrimPrefix(string(kv.Key), e.prefix), nil) {
					return
				}
				from = string(kv.Key) + "\x00"
			}
			if !r.More {
				return
			}
		}
	}
}
