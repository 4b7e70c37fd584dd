// Package etcd is an engine of package revisions in an etcd (3.4 or later), for several machines.
//
//	opts, err := etcdkv.Parse("etcd://e1:2379,e2:2379,e3:2379/prod")
//	opts.TLS = ... // and Username, Password, if the etcd requires them
//	conn, err := etcdkv.Open(opts)
//	repo := revisions.Open(etcd.New(conn), revisions.Options{})
//
// All keys are below the prefix. So a role with read and write permission for them is enough. Reads are linearizable. A
// sweep removes unneeded revisions. Their space returns after a compaction of the etcd (--auto-compaction-retention)
// and, on its disks, after a defragmentation.
package etcd

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// An Engine keeps values in an etcd. [New] makes one. Several goroutines may use it at once.
type Engine struct{ conn *etcdkv.Conn }

// New returns the engine below the prefix of a connection. The caller closes the connection.
func New(conn *etcdkv.Conn) *Engine { return &Engine{conn} }

// TimesBack returns how many times the etcd went back to an earlier revision, since its connection was opened.
func (e *Engine) TimesBack() int { return e.conn.TimesBack() }

// Get implements [revisions.Engine].
func (e *Engine) Get(ctx context.Context, key string) (value []byte, err error) {
	return value, e.conn.Do(ctx, key, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, e.conn.Key(key))
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
	return e.put(ctx, key, e.absent(key), value, nil)
}

// CompareAndSwap implements [revisions.Engine].
func (e *Engine) CompareAndSwap(ctx context.Context, key string, old, value []byte) error {
	is := e.absent(key)
	if old != nil {
		is = clientv3.Compare(clientv3.Value(e.conn.Key(key)), "=", string(old))
	}
	return e.put(ctx, key, is, value, revisions.ErrConflict)
}

func (e *Engine) absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(e.conn.Key(key)), "=", 0)
}

// put stores a value if a condition holds; otherwise it returns the error `no`.
func (e *Engine) put(ctx context.Context, key string, condition clientv3.Cmp, value []byte, no error) error {
	if len(value) > revisions.MaxValue {
		return fmt.Errorf("%s: %d bytes are %w", key, len(value), revisions.ErrTooLarge)
	}
	return e.conn.Do(ctx, key, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Txn(ctx).If(condition).Then(clientv3.OpPut(e.conn.Key(key), string(value))).Commit()
		if err == nil && !r.Succeeded {
			return no
		}
		return err
	})
}

// Delete implements [revisions.Engine].
func (e *Engine) Delete(ctx context.Context, keys ...string) error {
	for some := range slices.Chunk(keys, 100) { // the default limit of a transaction is 128
		ops := make([]clientv3.Op, 0, len(some))
		for _, key := range some {
			ops = append(ops, clientv3.OpDelete(e.conn.Key(key)))
		}
		if err := e.conn.Do(ctx, some[0], func(ctx context.Context, c *clientv3.Client) error {
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
		end := clientv3.GetPrefixRangeEnd(e.conn.Key(prefix))
		for from := e.conn.Key(prefix); ; {
			var r *clientv3.GetResponse
			err := e.conn.Do(ctx, prefix, func(ctx context.Context, c *clientv3.Client) (err error) {
				r, err = c.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(1000))
				return err
			})
			if err != nil {
				yield("", err)
				return
			}
			for _, kv := range r.Kvs {
				if !yield(e.conn.Name(kv.Key), nil) {
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

// Watch implements [revisions.Engine]. It sends to the channel at each start of the etcd watch,
// because changes may have been missed before.
func (e *Engine) Watch(ctx context.Context, key string) <-chan struct{} {
	bell := make(chan struct{}, 1)
	go func() {
		defer close(bell)
		e.conn.Watch(ctx, key, func(ctx context.Context, c *clientv3.Client) (received bool, err error) {
			times := e.conn.TimesBack()
			for r := range c.Watch(clientv3.WithRequireLeader(ctx), e.conn.Key(key), clientv3.WithCreatedNotify()) {
				if r.Err() != nil {
					return received, r.Err()
				}
				received = true
				e.conn.Saw(times, r.Header.Revision)
				select {
				case bell <- struct{}{}:
				default:
				}
			}
			return received, nil
		}, func(error, time.Duration) {})
	}()
	return bell
}
