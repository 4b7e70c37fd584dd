package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Announce implements [revisions.Announcer]: the key has a lease.
func (e *Engine) Announce(ctx context.Context, key string, values <-chan []byte) error {
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	var session *concurrency.Session
	err := e.conn.Do(ctx, key, func(limited context.Context, c *clientv3.Client) (err error) {
		session, err = e.session(limited, held, c)
		return err
	})
	if err != nil {
		return err
	}
	defer revoke(ctx, session, cancel)
	for {
		select {
		case v := <-values:
			err := e.conn.Do(ctx, key, func(ctx context.Context, c *clientv3.Client) error {
				_, err := c.Put(ctx, e.conn.Key(key), string(v), clientv3.WithLease(session.Lease()))
				return err
			})
			if err != nil && ctx.Err() == nil {
				return err
			}
		case <-session.Done():
			if ctx.Err() == nil {
				return fmt.Errorf("%s: lease lost: %w", key, revisions.ErrUnavailable)
			}
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// Announced implements [revisions.Announcer].
func (e *Engine) Announced(ctx context.Context, prefix string, most int) (all map[string][]byte, more bool, err error) {
	all = map[string][]byte{}
	err = e.conn.Do(ctx, prefix, func(ctx context.Context, c *clientv3.Client) error {
		r, err := c.Get(ctx, e.conn.Key(prefix), clientv3.WithPrefix(), clientv3.WithLimit(int64(most)))
		if err != nil {
			return err
		}
		for _, kv := range r.Kvs {
			all[e.conn.Name(kv.Key)] = kv.Value
		}
		more = r.More
		return nil
	})
	return all, more, err
}
