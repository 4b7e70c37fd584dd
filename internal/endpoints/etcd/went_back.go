package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/chancery-xds/chancery/internal/endpoints"
)

// restoredKey is the key of a counter: how many times a server has stored lost registrations again. A server
// whose counter is lower leaves that to the other server, which may have removed registrations since.
const restoredKey = dir + ".restored"

// Restore implements [endpoints.Restorer].
func (e *Engine) Restore(present func() []endpoints.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.present = present
}

// removing records the keys that a write removes. If the etcd has gone back, the write must not be undone.
func (e *Engine) removing(puts, removes []endpoints.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range puts {
		delete(e.removed, c.Key)
	}
	for _, c := range removes {
		e.removed[c.Key] = true
	}
}

// sawEvents records events of the watch.
func (e *Engine) sawEvents(events []*clientv3.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range events {
		if k, ok := e.parse(string(ev.Kv.Key)); ok {
			delete(e.removed, k)
		} else if string(ev.Kv.Key) == e.conn.Key(restoredKey) && ev.Type == mvccpb.PUT {
			e.restored = max(e.restored, counter(ev.Kv.Value))
		}
	}
}

func counter(value []byte) int {
	n, _ := strconv.Atoi(string(value)) // an invalid value is 0
	return n
}

// reportedAll records that Watch has reported all registrations, at a revision.
func (e *Engine) reportedAll(timesBack int, rev int64) {
	e.mu.Lock()
	e.timesBack = timesBack
	clear(e.removed)
	e.mu.Unlock()
	e.fault.Set("", nil)
	e.reported(rev)
}

// restoreAndRead reads all registrations. If the etcd has gone back since the last report, it first stores the lost
// registrations again, unless another server has done so. That server may have stored registrations that this one has
// removed: it removes them again.
func (e *Engine) restoreAndRead(ctx context.Context, timesBack int) (all []endpoints.Change, rev int64, err error) {
	restored, counted, err := e.counter(ctx)
	if err != nil {
		return nil, 0, err
	}
	all, rev, err = e.read(ctx)
	if err != nil {
		return nil, 0, err
	}
	e.mu.Lock()
	before, present := e.restored, e.present
	back := timesBack != e.timesBack && e.seen > 0
	e.mu.Unlock()
	if back && restored <= before && present != nil {
		restored = before + 1
		lost := e.lost(all, present())
		err = e.store(ctx, lost, restored, counted)
		if errors.Is(err, errMissed) {
			return e.restoreAndRead(ctx, timesBack)
		}
		if err != nil {
			return nil, 0, err
		}
		if len(lost) > 0 {
			e.log.Warn("registered endpoints were missing in the etcd that went back, and are stored again", "registrations", len(lost))
		}
		all, rev, err = e.read(ctx)
	}
	if back && err == nil {
		all, rev, err = e.removeAgain(ctx, all, rev)
	}
	e.mu.Lock()
	e.restored = restored
	e.mu.Unlock()
	return all, rev, err
}

// removeAgain removes the registrations that this engine has removed and that another server has stored again. It
// returns the registrations after that.
func (e *Engine) removeAgain(ctx context.Context, all []endpoints.Change, rev int64) ([]endpoints.Change, int64, error) {
	var removes []endpoints.Change
	e.mu.Lock()
	for _, c := range all {
		if e.removed[c.Key] {
			removes = append(removes, endpoints.Change{Key: c.Key})
		}
	}
	e.mu.Unlock()
	if len(removes) == 0 {
		return all, rev, nil
	}
	if err := e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		_, err := e.commit(ctx, client, removes)
		return err
	}); err != nil {
		return nil, 0, err
	}
	return e.read(ctx)
}

// pollEvery is the interval between two looks at the etcd. One that goes back sends no event.
const pollEvery = 3 * time.Second

// poll reads the counter until ctx is done, so that the connection sees the revision of the etcd. It ends the
// watch if another server has noticed that the etcd went back, and this one has not.
func (e *Engine) poll(ctx context.Context, end context.CancelCauseFunc) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n, _, err := e.counter(ctx)
		// The client of the etcd restarts a watch without an error. So only the poll notices that the etcd does not answer.
		if ctx.Err() == nil && e.fault.Set(unread, err) && err != nil {
			e.log.Warn(watchFailed, "error", err)
		}
		e.mu.Lock()
		missed := err == nil && n > e.restored
		e.mu.Unlock()
		if missed {
			end(errMissed)
			return
		}
	}
}

var errMissed = errors.New("another server has stored lost registrations again")

// counter reads restoredKey and its revision; 0: it is missing.
func (e *Engine) counter(ctx context.Context) (n int, rev int64, err error) {
	err = e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
		r, err := client.Get(ctx, e.conn.Key(restoredKey))
		if err == nil && len(r.Kvs) > 0 {
			n, rev = counter(r.Kvs[0].Value), r.Kvs[0].ModRevision
		}
		return err
	})
	return n, rev, err
}

// lost returns the present registrations that an etcd lacks, without those that this engine has just removed.
func (e *Engine) lost(all, present []endpoints.Change) []endpoints.Change {
	have := make(map[endpoints.Key]bool, len(all))
	for _, c := range all {
		have[c.Key] = true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(present, func(c endpoints.Change) bool { return have[c.Key] || e.removed[c.Key] })
}

// store stores registrations whose keys are missing, and then the counter. Their leases are lost: they get one
// of the same time, and their owners put them again. The error is errMissed if the counter no longer has the revision
// counted: another server has stored them, and may have removed some since.
func (e *Engine) store(ctx context.Context, lost []endpoints.Change, restored int, counted int64) error {
	commit := func(ops ...clientv3.Op) error {
		return e.do(ctx, func(ctx context.Context, client *clientv3.Client) error {
			r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(e.conn.Key(restoredKey)), "=", counted)).Then(ops...).Commit()
			if err == nil && !r.Succeeded {
				return errMissed
			}
			return err
		})
	}
	leases := map[time.Duration]endpoints.LeaseID{}
	for some := range slices.Chunk(lost, most) {
		var ops []clientv3.Op
		for _, c := range some {
			var options []clientv3.OpOption
			if c.Lease != 0 {
				var v endpoints.Value
				if json.Unmarshal(c.Value, &v) != nil || v.TTL <= 0 {
					continue // present has only valid values
				}
				ttl := time.Duration(v.TTL)
				if leases[ttl] == 0 {
					id, err := e.Grant(ctx, ttl)
					if err != nil {
						return err
					}
					leases[ttl] = id
				}
				options = append(options, clientv3.WithLease(clientv3.LeaseID(leases[ttl])))
			}
			key := e.key(c.Key)
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
				[]clientv3.Op{clientv3.OpPut(key, string(c.Value), options...)}, nil))
		}
		if err := commit(ops...); err != nil {
			return err
		}
	}
	return commit(clientv3.OpPut(e.conn.Key(restoredKey), fmt.Sprint(restored)))
}
