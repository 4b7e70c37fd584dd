// Package etcdkv is the connection to an etcd (3.4 or later) that the engines of revisions and of endpoints share: a
// client with a token, timeouts, errors for people, and watches that restart. Each engine knows only its own keys.
package etcdkv

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A Conn is a connection to an etcd, with a prefix of its keys. [Open] makes one. Several goroutines
// may use it at once.
type Conn struct {
	config  clientv3.Config
	prefix  string
	timeout time.Duration
	turn    chan struct{}                   // has one token: the goroutine that holds it makes the client
	client  atomic.Pointer[clientv3.Client] // nil: the etcd has not authenticated the user yet
	past    *past
	why     atomic.Pointer[string] // why the last connection failed; nil: it did not fail
}

// Open returns a connection. It sends no request, so an unreachable etcd or an unknown user is only
// reported by the first request. Close ends the connection.
func Open(o Options) (*Conn, error) {
	scheme := "http://"
	if o.TLS != nil {
		scheme = "https://"
	}
	timeout := cmp.Or(o.Timeout, 5*time.Second)
	config := clientv3.Config{
		TLS: o.TLS, Username: o.Username, Password: o.Password,
		// Authentication must fail before the request that needs it times out.
		DialTimeout: timeout * 9 / 10,
		// The client pings only during a request: an etcd ends the connection of an idle client that pings.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		Logger: zap.NewNop(),
	}
	for _, e := range o.Endpoints {
		config.Endpoints = append(config.Endpoints, scheme+e)
	}
	c := &Conn{config: config, prefix: o.Prefix + "/", timeout: timeout, turn: make(chan struct{}, 1), past: newPast(cmp.Or(o.Log, slog.Default()))}
	c.config.DialOptions = append(slices.Clone(o.dial), grpc.WithChainUnaryInterceptor(c.note))
	c.turn <- struct{}{}
	if o.Username != "" {
		return c, nil // the client must authenticate, and the etcd may not answer yet
	}
	_, err := c.connect(context.Background())
	return c, err
}

// connect returns the client. For a user, it makes the client only when the etcd has authenticated
// that user.
func (c *Conn) connect(ctx context.Context) (*clientv3.Client, error) {
	if client := c.client.Load(); client != nil {
		return client, nil
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { c.turn <- struct{}{} }()
	if client := c.client.Load(); client != nil {
		return client, nil
	}
	config := c.config
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	config.Context = life
	client, err := clientv3.New(config)
	switch inTime := stop(); {
	case err != nil && inTime:
		end()
		return nil, err
	case err != nil:
		return nil, ctx.Err()
	case !inTime:
		_ = client.Close()
		return nil, ctx.Err()
	}
	c.client.Store(client)
	return client, nil
}

// note records why no answer came, because the client's own error only reports the timeout. It also records
// the revision in each answer.
func (c *Conn) note(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	before := c.past.position()
	err := invoke(ctx, method, req, reply, conn, opts...)
	if h := linearizable(method, req, reply); err == nil && h != nil {
		c.past.answered(before, h)
	}
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable, codes.DeadlineExceeded:
		c.why.Store(new(s.Message()))
	case codes.OK:
		c.why.Store(nil)
	}
	return err
}

// Close ends the connection, with all watches and leases. No method may be called after it.
func (c *Conn) Close() error {
	if client := c.client.Load(); client != nil {
		return client.Close()
	}
	return nil
}

// Key returns the full name of a key, which begins with the prefix.
func (c *Conn) Key(key string) string { return c.prefix + key }

// Name is the reverse of [Conn.Key].
func (c *Conn) Name(key []byte) string { return strings.TrimPrefix(string(key), c.prefix) }

// Do calls f with the client, within the timeout of a request. The error names the key, and wraps an error of package
// revisions if one fits.
func (c *Conn) Do(ctx context.Context, key string, f func(ctx context.Context, client *clientv3.Client) error) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	client, err := c.connect(limited)
	if err == nil {
		err = f(limited, client)
	}
	if why := c.why.Load(); errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && why != nil {
		err = status.Error(codes.Unavailable, *why)
	}
	return failed(ctx, c.Key(key), err)
}

// firstPause and lastPause bound the pause before a watch starts again.
const firstPause, lastPause = 100 * time.Millisecond, 5 * time.Second

// Watch calls the function once again and again until ctx is done, with growing pauses. A watch ends
// if its revision was compacted, its member has no leader, the user lacks the permission, or the etcd
// went back ([WentBack]). After a restart, once must read everything. If it returns received, the next pause is short again. Watch calls
// failed before each pause.
func (c *Conn) Watch(ctx context.Context, key string, once func(ctx context.Context, client *clientv3.Client) (received bool, err error), failed func(err error, pause time.Duration)) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		received, err := c.watch(ctx, key, once)
		if ctx.Err() != nil {
			return
		}
		if received {
			pause = firstPause
		}
		failed(err, pause)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

func (c *Conn) watch(ctx context.Context, key string, once func(context.Context, *clientv3.Client) (bool, error)) (received bool, err error) {
	ctx, cancel := c.past.untilBack(ctx) // ends the etcd watch of once
	defer cancel()
	client, err := c.connect(ctx)
	if err == nil {
		received, err = once(ctx, client)
	}
	return received, failed(ctx, c.Key(key), err)
}
