// Package etcd is an engine of package endpoints in an etcd (3.4 or later): what is registered at one of several servers,
// all of them serve.
//
//	engine := etcd.New(func(context.Context) (*clientv3.Client, error) { return client, nil }, "prod", nil)
//	reg := endpoints.New(engine, st, endpoints.Options{})
//
// Each registration is a key of its own, PREFIX/endpoints/GROUP/CLUSTER/ID, with a lease of the etcd if it has one; the
// parts are escaped as in a URL. Writes of more than 100 keys are several transactions.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chancery-xds/chancery/internal/endpoints"
)

// An Engine keeps registrations in an etcd. It is made by [New], and may be used by several goroutines at
// once.
type Engine struct {
	connect func(context.Context) (*clientv3.Client, error)
	prefix  string // of all keys, with a slash at its end
	log     *slog.Logger

	mu      sync.Mutex // guards what follows; held for memory only
	seen    int64      // the revision of the etcd that Watch has told of; 0: nobody watches
	moved   chan struct{}
	foreign map[string]bool // keys that were told to be no registrations
}

const (
	timeout = 5 * time.Second // of a request
	// most is how many keys a transaction has: an etcd takes 128 unless it is told otherwise.
	most = 100
	page = 1000 // keys that are read at once
	// atOnce is how many transactions of a write are under way at once: an etcd syncs those together.
	atOnce = 8
)

// New returns an engine of keys below a prefix, which has no slashes around it. The log is told of what cannot be read,
// and why the etcd cannot; nil: slog.Default(). connect is called for each request, and returns one client, which is the
// caller's to close; an error says why there is none yet.
func New(connect func(context.Context) (*clientv3.Client, error), prefix string, log *slog.Logger) *Engine {
	if log == nil {
		log = slog.Default()
	}
	return &Engine{connect: connect, prefix: prefix + "/endpoints/", log: log, moved: make(chan struct{}), foreign: map[string]bool{}}
}

// key is that of a registration.
func (e *Engine) key(k endpoints.Key) string {
	s := e.prefix + url.PathEscape(k.Group) + "/" + url.PathEscape(k.Name)
	if k.ID != "" {
		s += "/" + url.PathEscape(k.ID)
	}
	return s
}

// parse is the reverse of key; false: it is none of ours.
func (e *Engine) parse(key string) (k endpoints.Key, ok bool) {
	parts := strings.Split(strings.TrimPrefix(key, e.prefix), "/")
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
	return k, e.key(k) == key // one key for each
}

// failed is an error of the client as one of this package.
func (e *Engine) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return endpoints.ErrNoLease
	}
	return fmt.Errorf("etcd, keys %s: %w", e.prefix, err)
}

// Grant implements [endpoints.Engine].
func (e *Engine) Grant(ctx context.Context, ttl time.Duration) (endpoints.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := e.connect(ctx)
	if err != nil {
		return 0, err
	}
	r, err := client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return 0, e.failed(err)
	}
	return endpoints.LeaseID(r.ID), nil
}

// Renew implements [endpoints.Engine].
func (e *Engine) Renew(ctx context.Context, id endpoints.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := e.connect(ctx)
	if err != nil {
		return err
	}
	_, err = client.KeepAliveOnce(ctx, clientv3.LeaseID(id))
	return e.failed(err)
}

// Revoke implements [endpoints.Engine]. Nobody puts under such a lease any more but who holds it, at another server: he
// begins anew.
func (e *Engine) Revoke(ctx context.Context, ids []endpoints.LeaseID) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := e.connect(ctx)
	if err != nil {
		return
	}
	var ending sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for _, id := range ids {
		places <- struct{}{}
		ending.Go(func() {
			defer func() { <-places }()
			// To revoke one would remove its keys.
			if r, err := client.TimeToLive(ctx, clientv3.LeaseID(id), clientv3.WithAttachedKeys()); err == nil && r.TTL > 0 && len(r.Keys) == 0 {
				_, _ = client.Revoke(ctx, clientv3.LeaseID(id))
			}
		})
	}
	ending.Wait()
}

// Write implements [endpoints.Engine].
func (e *Engine) Write(ctx context.Context, changes []endpoints.Change) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := e.connect(ctx)
	if err != nil {
		return err
	}
	// Who replaces what is there puts first, and removes what is too much after that.
	var puts, removes []endpoints.Change
	for _, c := range last(changes) {
		if c.Value == nil {
			removes = append(removes, c)
		} else {
			puts = append(puts, c)
		}
	}
	rev, err := e.commit(ctx, client, puts)
	if err == nil && len(removes) > 0 {
		rev, err = e.commit(ctx, client, removes)
	}
	if err != nil {
		return e.failed(err)
	}
	e.await(ctx, rev)
	return nil
}

// commit writes changes of different keys, several transactions at once, and returns the newest revision. One after the
// other they would be as slow as that many disks.
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
				cancel(err) // the first is the cause
			}
			mu.Lock()
			newest = max(newest, rev)
			mu.Unlock()
		})
	}
	writing.Wait()
	return newest, context.Cause(ctx)
}

// transact writes changes in one transaction, and returns its revision.
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

// last returns the last change of each key, in the order of these.
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

// await waits a second at most until Watch has told of a revision.
func (e *Engine) await(ctx context.Context, rev int64) {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	for {
		e.mu.Lock()
		done, moved := e.seen == 0 || e.seen >= rev, e.moved
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

// tells notes that Watch has told of a revision.
func (e *Engine) tells(rev int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = rev
	close(e.moved)
	e.moved = make(chan struct{})
}

// least and longest are how long a watch waits before it begins anew.
const least, longest = 100 * time.Millisecond, 5 * time.Second

// Watch implements [endpoints.Engine]. A watch that ends, since what it had to report was compacted or its member has no leader,
// begins anew with all there is. While the etcd is away, what it has told last stays.
func (e *Engine) Watch(ctx context.Context, report func([]endpoints.Change, bool)) {
	defer e.tells(0)
	for wait := least; ctx.Err() == nil; {
		began, err := e.watch(ctx, report)
		if ctx.Err() != nil {
			return
		}
		if began {
			wait = least
		}
		e.log.Warn("etcd watch failed, serving the last known endpoints", "error", err, "again_in", wait.String())
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
		wait = min(2*wait, longest)
	}
}

// watch tells of all there is, and then of changes, until it cannot. It reports whether it has told of anything.
func (e *Engine) watch(ctx context.Context, report func([]endpoints.Change, bool)) (began bool, err error) {
	client, err := e.connect(ctx)
	if err != nil {
		return false, err
	}
	all, rev, err := e.all(ctx, client)
	if err != nil {
		return false, e.failed(err)
	}
	report(all, true)
	e.tells(rev)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range client.Watch(clientv3.WithRequireLeader(ctx), e.prefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1)) {
		if err := r.Err(); err != nil {
			return true, e.failed(err)
		}
		changes := make([]endpoints.Change, 0, len(r.Events))
		for _, ev := range r.Events {
			if c, ok := e.change(ev.Kv, ev.Type == mvccpb.DELETE); ok {
				changes = append(changes, c)
			}
		}
		if len(changes) > 0 {
			report(changes, false)
		}
		e.tells(r.Header.Revision)
	}
	return true, errors.New("the watch has ended")
}

// all reads all there is, and says of which revision that is.
func (e *Engine) all(ctx context.Context, client *clientv3.Client) (all []endpoints.Change, rev int64, err error) {
	end := clientv3.GetPrefixRangeEnd(e.prefix)
	for from := e.prefix; ; {
		limited, cancel := context.WithTimeout(ctx, timeout)
		r, err := client.Get(limited, from, clientv3.WithRange(end), clientv3.WithLimit(page), clientv3.WithRev(rev))
		cancel()
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

// change is what became of a key; false: it is no registration.
func (e *Engine) change(kv *mvccpb.KeyValue, gone bool) (c endpoints.Change, ok bool) {
	c.Key, ok = e.parse(string(kv.Key))
	if !ok {
		e.strange(string(kv.Key))
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

// strange tells the log once of a key that nobody of ours has written.
func (e *Engine) strange(key string) {
	e.mu.Lock()
	told := e.foreign[key] || len(e.foreign) >= 100
	if !told {
		e.foreign[key] = true
	}
	e.mu.Unlock()
	if !told {
		e.log.Warn("unknown key below the registered endpoints: ignored", "key", key)
	}
}
