// Package etcd is an engine of package endpoints in an etcd (3.4 or later). All its servers serve an endpoint that is
// registered at one of them.
//
//	engine := etcd.New(conn, nil)
//	reg := endpoints.New(engine, st, endpoints.Options{})
//
// Each registration has its own key, PREFIX/endpoints/GROUP/CLUSTER/ID, with a lease of the etcd if it has one. The
// parts are escaped as in a URL. A write of more than 100 keys is several transactions.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chancery-xds/chancery/internal/cluster/etcdkv"
	"github.com/chancery-xds/chancery/internal/endpoints"
	"github.com/chancery-xds/chancery/internal/faults"
)

// An Engine keeps registrations in an etcd. It is made by [New]. Several goroutines may use it at once.
type Engine struct {
	conn *etcdkv.Conn
	log  *slog.Logger

	mu      sync.Mutex // guards the fields below; held for memory only
	seen    int64      // the last revision of the etcd that Watch has reported; 0: there is no Watch
	moved   chan struct{}
	foreign map[string]bool // the invalid keys that were logged

	present   func() []endpoints.Change // the present registrations; nil: unknown
	timesBack int                       // how many times the etcd had gone back at the last report of all registrations
	restored  int                       // the value of the key restoredKey, as last read
	removed   map[endpoints.Key]bool    // the keys that this engine removed, and Watch has not reported since

	fault faults.Record // why the registrations may be old (SAFE-17)
}

const (
	dir = "endpoints/" // of all keys, below the prefix of the connection

	// most is the maximum number of keys in a transaction: the default limit of an etcd is 128.
	most = 100
	page = 1000 // keys per read
	// atOnce limits the concurrent transactions of a write: an etcd syncs concurrent ones together.
	atOnce = 8
)

// New returns an engine of keys below the prefix of a connection, which the caller closes. Invalid keys, and failures of
// the watch, are logged; a nil log is slog.Default().
func New(conn *etcdkv.Conn, log *slog.Logger) *Engine {
	if log == nil {
		log = slog.Default()
	}
	return &Engine{conn: conn, log: log, moved: make(chan struct{}), foreign: map[string]bool{}, removed: map[endpoints.Key]bool{}}
}

// key returns the full key of a registration.
func (e *Engine) key(k endpoints.Key) string {
	s := e.conn.Key(dir) + url.PathEscape(k.Group) + "/" + url.PathEscape(k.Name)
	if k.ID != "" {
		s += "/" + url.PathEscape(k.ID)
	}
	return s
}

// parse is the reverse of key; false: the key is invalid.
func (e *Engine) parse(key string) (k endpoints.Key, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, e.conn.Key(dir)), "/")
	if len(parts) != 2 && len(parts) != 3 {
		return k, false
	}
	for i, part := range parts {
		text, err := url.PathUnescape(part)
		if err != nil || text == "" {
			return k, false
		}
		switch i {
		case 0:
			k.Group = text
		case 1:
			k.Name = text
		case 2:
			k.ID = text
		}
	}
	return k, e.key(k) == key // each registration has exactly one key
}

// do is [etcdkv.Conn.Do] for a request about any of the keys.
func (e *Engine) do(ctx context.Context, f func(ctx context.Context, client *clientv3.Client) error) error {
	err := e.conn.Do(ctx, dir, f)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return endpoints.ErrNoLease
	}
	return err
}

// Grant implements [endpoints.Engine].
func (e *Engine) Grant(ctx context.Context, ttl time.Duration) (id endpoints.LeaseID, err error) {
	return id, e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		r, err := client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
		if err == nil {
			id = endpoints.LeaseID(r.ID)
		}
		return err
	})
}

// Renew implements [endpoints.Engine].
func (e *Engine) Renew(ctx context.Context, id endpoints.LeaseID) error {
	return e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.KeepAliveOnce(ctx, clientv3.LeaseID(id))
		return err
	})
}

// Revoke implements [endpoints.Engine]. Only the holder of such a lease, at another server, may still put under it: then it
// gets [endpoints.ErrNoLease], and starts again.
func (e *Engine) Revoke(ctx context.Context, ids []endpoints.LeaseID) {
	_ = e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		var ending sync.WaitGroup
		places := make(chan struct{}, atOnce)
		for _, id := range ids {
			places <- struct{}{}
			ending.Go(func() {
				defer func() { <-places }()
				// Revoking a lease with keys would remove them.
				if r, err := client.TimeToLive(ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys()); err == nil && r.TTL > 0 && len(r.Keys) == 0 {
					_, _ = client.Revoke(ctx, clientv3.LeaseID(id))
				}
			})
		}
		ending.Wait()
		return nil
	})
}

// Write implements [endpoints.Engine].
func (e *Engine) Write(ctx context.Context, changes []endpoints.Change) error {
	// A replacement puts the new keys first, and removes the old ones after that.
	var puts, removes []endpoints.Change
	for _, c := range last(changes) {
		if c.Value == nil {
			removes = append(removes, c)
		} else {
			puts = append(puts, c)
		}
	}
	return e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		e.removing(puts, removes)
		rev, err := e.commit(ctx, client, puts)
		if err == nil && len(removes) > 0 {
			rev, err = e.commit(ctx, client, removes)
		}
		if err == nil {
			e.await(ctx, rev)
		}
		return err
	})
}

// commit writes changes of different keys, in several concurrent transactions, and returns the newest revision. One
// transaction after the other would wait for the disk of the etcd each time.
func (e *Engine) commit(ctx context.Context, client *clientv3.Client, changes []endpoints.Change) (newest int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var writing sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for some := range slices.Chunk(changes, most) {
		places <- struct{}{}
		writing.Go(func() {
			defer func() { <-places }()
			rev, err := e.transact(ctx, client, some)
			if err != nil {
				cancel(err) // the first error is the cause
			}
			mu.Lock()
			newest = max(newest, rev)
			mu.Unlock()
		})
	}
	writing.Wait()
	return newest, context.Cause(ctx)
}

// transact writes changes in one transaction, and returns the revision of the etcd.
func (e *Engine) transact(ctx context.Context, client *clientv3.Client, changes []endpoints.Change) (int64, error) {
	ops := make([]clientv3.Op, 0, len(changes))
	for _, c := range changes {
		switch {
		case c.Value == nil:
			ops = append(ops, clientv3.OpDelete(e.key(c.Key)))
		case c.Lease != 0:
			ops = append(ops, clientv3.OpPut(e.key(c.Key), string(c.Value), clientv3.WithLease(clientv3.LeaseID(c.Lease))))
		default:
			ops = append(ops, clientv3.OpPut(e.key(c.Key), string(c.Value)))
		}
	}
	r, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	return r.Header.Revision, nil
}

// last returns the last change of each key, in their order.
func last(changes []endpoints.Change) []endpoints.Change {
	at := make(map[endpoints.Key]int, len(changes))
	for i, c := range changes {
		at[c.Key] = i
	}
	if len(at) == len(changes) {
		return changes
	}
	all := make([]endpoints.Change, 0, len(at))
	for i, c := range changes {
		if at[c.Key] == i {
			all = append(all, c)
		}
	}
	return all
}

// await waits until Watch has reported a revision, a second at most.
func (e *Engine) await(ctx context.Context, rev int64) {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	for {
		e.mu.Lock()
		done, moved := e.seen == 0 || e.seen >= rev && e.timesBack == e.conn.TimesBack(), e.moved
		e.mu.Unlock()
		if done {
			return
		}
		select {
		case <-moved:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// reported records that Watch has reported a revision.
func (e *Engine) reported(rev int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = rev
	close(e.moved)
	e.moved = make(chan struct{})
}

// Watch implements [endpoints.Engine]. Each restart of the watch reports all registrations. While the etcd does not answer,
// the last registrations stay. If the etcd went back, Watch first stores the lost registrations again.
func (e *Engine) Watch(ctx context.Context, report func([]endpoints.Change, bool)) {
	defer e.reported(0)
	e.conn.Watch(ctx, dir, func(ctx context.Context, client *clientv3.Client) (began bool, err error) {
		timesBack := e.conn.TimesBack()
		all, rev, err := e.restoreAndRead(ctx, timesBack)
		if err != nil {
			return false, err
		}
		report(all, true)
		e.reportedAll(timesBack, rev)
		ctx, cancel := context.WithCancelCause(ctx)
		var polling sync.WaitGroup
		defer polling.Wait()
		defer cancel(nil)
		polling.Go(func() { e.poll(ctx, cancel) })
		for r := range client.Watch(clientv3.WithRequireLeader(ctx), e.conn.Key(dir), clientv3.WithPrefix(), clientv3.WithRev(rev+1)) {
			if err := r.Err(); err != nil {
				return true, err
			}
			e.conn.Saw(timesBack, r.Header.Revision)
			e.sawEvents(r.Events)
			changes := make([]endpoints.Change, 0, len(r.Events))
			for _, ev := range r.Events {
				if c, ok := e.change(ev.Kv, ev.Type == mvccpb.DELETE); ok {
					changes = append(changes, c)
				}
			}
			if len(changes) > 0 {
				report(changes, false)
			}
			e.reported(r.Header.Revision)
		}
		return true, cmp.Or(context.Cause(ctx), errors.New("the watch has ended"))
	}, func(err error, pause time.Duration) {
		if _, back := errors.AsType[*etcdkv.WentBack](err); back {
			return // the connection has logged it
		}
		e.fault.Set(unread, err)
		e.log.Warn(watchFailed, "error", err, "again_in", pause.String())
	})
}

const (
	watchFailed = "etcd watch failed, serving the last known endpoints"
	unread      = "the etcd cannot be read, so the last registered endpoints stay"
)

// Faults implements [endpoints.Faulty].
func (e *Engine) Faults() []faults.Fault { return e.fault.Present() }

// read reads all registrations, and returns the revision of the etcd that has them.
func (e *Engine) read(ctx context.Context) (all []endpoints.Change, rev int64, err error) {
	from := e.conn.Key(dir)
	end := clientv3.GetPrefixRangeEnd(from)
	for {
		var r *clientv3.GetResponse
		err := e.do(ctx, func(ctx context.Context, client *clientv3.Client) (err error) {
			r, err = client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(rev))
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		if rev == 0 {
			rev = r.Header.Revision
		}
		for _, kv := range r.Kvs {
			if c, ok := e.change(kv, false); ok {
				all = append(all, c)
			}
			from = string(kv.Key) + "\x00"
		}
		if !r.More {
			return all, rev, nil
		}
	}
}

// change returns the change of a key; false: the key is not a registration.
func (e *Engine) change(kv *mvccpb.KeyValue, gone bool) (c endpoints.Change, ok bool) {
	c.Key, ok = e.parse(string(kv.Key))
	if !ok && string(kv.Key) == e.conn.Key(restoredKey) {
		return c, false
	}
	if !ok {
		e.logInvalid(string(kv.Key))
		return c, false
	}
	if !gone {
		c.Value, c.Lease = kv.Value, endpoints.LeaseID(kv.Lease)
		if c.Value == nil {
			c.Value = []byte{}
		}
	}
	return c, true
}

// logInvalid logs an invalid key once.
func (e *Engine) logInvalid(key string) {
	e.mu.Lock()
	logged := e.foreign[key] || len(e.foreign) >= 100
	if !logged {
		e.foreign[key] = true
	}
	e.mu.Unlock()
	if !logged {
		e.log.Warn("unknown key below the registered endpoints: ignored", "key", key)
	}
}
