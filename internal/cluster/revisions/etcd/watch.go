package etcd

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// Watch implements [revisions.Engine]. A watch that ends, since what it had to tell was compacted, or its
// member has no leader, or the user may not, is begun anew, from then on: each begin rings,
// for what was missed.
func (e *Engine) Watch(ctx context.Context, key string) <-chan struct{} {
	bell := make(chan struct{}, 1)
	go func() {
		defer close(bell)
		for wait := least; ctx.Err() == nil; {
			if e.watch(ctx, key, bell) {
				wait = least
			}
			t := time.NewTimer(wait)
			select {
			case <-t.C:
			case <-ctx.Done():
			}
			t.Stop()
			wait = min(2*wait, most)
		}
	}()
	return bell
}

// least and most are how long a watch waits before it begins anew.
const least, most = 100 * time.Millisecond, 5 * time.Second

// watch watches once, and reports whether it told of anything.
func (e *Engine) watch(ctx context.Context, key string, bell chan<- struct{}) (told bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := e.connected(ctx)
	if err != nil {
		return false
	}
	for r := range c.Watch(clientv3.WithRequireLeader(ctx), e.prefix+key, clientv3.WithCreatedNotify()) {
		if r.Err() != nil {
			return told
		}
		told = true
		select {
		case bell <- struct{}{}:
		default:
		}
	}
	return told
}

// ttl is after how many seconds others get the lease of a program that died.
const ttl = 15

// session begins a lease that is kept until held is done.
func (e *Engine) session(limited, held context.Context, c *clientv3.Client) (*concurrency.Session, error) {
	granted, err := c.Grant(limited, ttl)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(c, concurrency.WithLease(granted.ID), concurrency.WithContext(held))
}

// Lease implements [revisions.Engine]. The key of a lease says which host has it.
func (e *Engine) Lease(ctx context.Context, name string) (held context.Context, release func(), err error) {
	key := "lease/" + name
	held, cancel := context.WithCancel(ctx)
	var session *concurrency.Session
	err = e.do(ctx, key, func(limited context.Context, c *clientv3.Client) error {
		session, err = e.session(limited, held, c)
		if err != nil {
			return err
		}
		host, _ := os.Hostname()
		r, err := c.Txn(limited).If(absent(e.prefix + key)).
			Then(clientv3.OpPut(e.prefix+key, fmt.Sprintf("%s, process %d", host, os.Getpid()), clientv3.WithLease(session.Lease()))).Commit()
		if err == nil && !r.Succeeded {
			return revisions.ErrBusy
		}
		return err
	})
	end := func() {
		if session == nil {
			cancel()
			return
		}
		// It is over for others before it is for the holder, who has ended; soon enough by itself if the etcd is away.
		soon, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_, _ = session.Client().Revoke(soon, session.Lease())
		done()
		cancel()
		<-session.Done()
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	go func() {
		<-session.Done()
		cancel()
	}()
	return held, sync.OnceFunc(end), nil
}
