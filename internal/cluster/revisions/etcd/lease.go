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

// ttl is the time after which the lease of a dead program ends, in seconds.
const ttl = 15

// session grants a lease that is renewed until held is done.
func (e *Engine) session(limited, held context.Context, c *clientv3.Client) (*concurrency.Session, error) {
	granted, err := c.Grant(limited, ttl)
	if err != nil {
		return nil, err
	}
	return concurrency.NewSession(c, concurrency.WithLease(granted.ID), concurrency.WithContext(held))
}

// revoke ends the session, and revokes its lease. If the etcd does not answer within a second, the
// lease expires later.
func revoke(ctx context.Context, s *concurrency.Session, end func()) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = s.Client().Revoke(limited, s.Lease())
	end()
	<-s.Done()
}

// Lease implements [revisions.Engine]. The value of its key names the host that holds it.
func (e *Engine) Lease(ctx context.Context, name string) (held context.Context, release func(), err error) {
	key := "lease/" + name
	held, cancel := context.WithCancel(ctx)
	var session *concurrency.Session
	err = e.conn.Do(ctx, key, func(limited context.Context, c *clientv3.Client) error {
		session, err = e.session(limited, held, c)
		if err != nil {
			return err
		}
		host, _ := os.Hostname()
		r, err := c.Txn(limited).If(e.absent(key)).
			Then(clientv3.OpPut(e.conn.Key(key), fmt.Sprintf("%s, process %d", host, os.Getpid()), clientv3.WithLease(session.Lease()))).Commit()
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
		revoke(ctx, session, cancel) // the holder has stopped: another program may acquire the lease before held is done
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
