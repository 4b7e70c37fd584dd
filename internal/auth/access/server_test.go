package access_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/auth/access"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// A daemon is a server of a store with a policy. All its connections have the same identity.
type daemon struct {
	*testing.T
	st   *store.Store
	src  *access.Source[*store.Watch]
	conn *grpc.ClientConn

	ahead atomic.Int64 // how far the policy's clock is ahead of the timers

	mu     sync.Mutex
	id     access.Identity
	failed error
	denied []string
}

func serve(t *testing.T, p *access.Policy) *daemon {
	d := &daemon{T: t, st: store.New(), id: access.Identity{Kind: access.MTLS, DNS: []string{"a"}}}
	d.src = access.New(d.st, p, access.Options{
		Identity: func(context.Context) (access.Identity, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.id, d.failed
		},
		Denied: func(_ context.Context, id access.Identity, n *xds.Node, why *access.Denied) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.denied = append(d.denied, id.String()+" "+n.ID+" "+why.Rule+" "+why.Place)
		},
		Now:    func() time.Time { return time.Now().Add(time.Duration(d.ahead.Load())) },
		Jitter: func() float64 { return 0.5 },
	})
	d.conn = xdstest.Serve(t, server.New(d.src, server.WithLogger(slog.New(slog.DiscardHandler))))
	return d
}

func (d *daemon) set(t *xds.Type, body string, names ...string) {
	d.Helper()
	_, err := d.st.Update(func(tx *store.Tx) error {
		for _, name := range names {
			r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Type: t, Body: []byte(body)}
			r.Seal("")
			tx.Set(r)
		}
		return nil
	})
	if err != nil {
		d.Fatal(err)
	}
}

func (d *daemon) delta(node string) *xdstest.Client {
	return xdstest.Delta(d, d.conn, xdstest.WithNode(xds.Node{ID: node}))
}

const own = `rules: [{name: own, identity: {dns: "{n}"}, secrets: ["{n}/**"]}]`

// "Impersonation ends the stream with PERMISSION_DENIED, a log line and an audit event."
func TestImpersonation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, policy(t, own))
		d.set(xds.Cluster, "1", "c")
		for _, open := range []func(xdstest.T, grpc.ClientConnInterface, ...xdstest.Option) *xdstest.Client{xdstest.SotW, xdstest.Delta} {
			d.denied = nil
			c := open(t, d.conn, xdstest.WithNode(xds.Node{ID: "b"}))
			c.Subscribe(xds.Cluster, "*")
			s := status.Convert(c.ExpectEnd())
			if s.Code() != codes.PermissionDenied || s.Message() != `the identity mtls DNS "a" may not be node "b" (rule "own")` {
				t.Error(s)
			}
			if want := []string{`mtls DNS "a" b own access.yaml:1:9`}; !slices.Equal(d.denied, want) {
				t.Errorf("%q", d.denied)
			}
		}
	})
}

// "Names that may not be seen look absent": to subscriptions, in the wildcard, and when they change.
func TestHiddenNamesLookAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, policy(t, own))
		d.set(xds.Secret, "1", "a/x", "b/x")
		all, some := d.delta("a"), d.delta("a")
		all.Subscribe(xds.Secret, "*")
		all.ACK(all.Expect(xds.Secret, "a/x"))
		some.Subscribe(xds.Secret, "a/x", "b/x", "nobody")
		r := some.Next(xds.Secret)
		if len(r.Resources) != 1 || r.Resources[0].Name != "a/x" || !slices.Equal(r.Removed, []string{"b/x", "nobody"}) {
			t.Error(r)
		}
		some.ACK(r)
		d.set(xds.Secret, "2", "b/x", "b/y")
		all.ExpectNothing()
		some.ExpectNothing()
		d.set(xds.Secret, "3", "a/x")
		all.ACK(all.Expect(xds.Secret, "a/x"))
		some.ACK(some.Expect(xds.Secret, "a/x"))
	})
}

// A new policy applies to open streams at once. A stream gets the difference, or ends if its client
// may not be its node any more. This also holds if there was no policy before.
func TestNewPolicyAppliesToOpenStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, nil)
		d.set(xds.Secret, "1", "a/x", "b/x")
		d.set(xds.Cluster, "1", "c")
		a, b := d.delta("a"), d.delta("b")
		for _, c := range []*xdstest.Client{a, b} {
			c.Subscribe(xds.Secret, "*")
			c.ACK(c.Expect(xds.Secret, "a/x", "b/x"))
		}
		d.src.SetPolicy(policy(t, own))
		a.ACK(a.ExpectRemoved(xds.Secret, "b/x"))
		if err := b.ExpectEnd(); status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
		d.src.SetPolicy(access.Default())
		a.ACK(a.Expect(xds.Secret, "b/x"))
		d.src.SetPolicy(policy(t, "rules: []"))
		if err := a.ExpectEnd(); status.Code(err) != codes.PermissionDenied {
			t.Error(err)
		}
	})
}

// "Identities that expire end their stream, jittered."
func TestExpiredIdentityEndsStream(t *testing.T) {
	for _, c := range []struct{ lives, ends time.Duration }{
		{time.Hour, time.Hour - 30*time.Second},
		{5 * time.Minute, 5*time.Minute - 15*time.Second},
		{time.Minute, time.Minute},
		{time.Second, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := serve(t, access.Default())
			d.set(xds.Cluster, "1", "c")
			begun := time.Now()
			d.id.Expires = begun.Add(c.lives)
			s := xdstest.Delta(t, d.conn, xdstest.WithNode(xds.Node{ID: "a"}), xdstest.WithTimeout(2*time.Hour))
			s.Subscribe(xds.Cluster, "*")
			s.ACK(s.Expect(xds.Cluster, "c"))
			if err := s.ExpectEnd(); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "expired") {
				t.Error(err)
			}
			if took := time.Since(begun); took != c.ends {
				t.Errorf("the stream ended after %v, want %v", took, c.ends)
			}
			if len(d.denied) != 1 {
				t.Errorf("%q", d.denied)
			}
		})
	}
}

// An identity expires by the wall clock, which may be set, not by the duration of a timer.
func TestExpiryFollowsWallClock(t *testing.T) {
	for _, ahead := range []time.Duration{-3 * time.Second, -5 * time.Minute, 30 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			d := serve(t, access.Default())
			d.set(xds.Cluster, "1", "c")
			begun := time.Now()
			d.id.Expires = begun.Add(time.Hour)
			s := xdstest.Delta(t, d.conn, xdstest.WithNode(xds.Node{ID: "a"}), xdstest.WithTimeout(2*time.Hour))
			s.Subscribe(xds.Cluster, "*")
			s.ACK(s.Expect(xds.Cluster, "c"))
			time.Sleep(10 * time.Minute)
			d.ahead.Store(int64(ahead))
			if err := s.ExpectEnd(); status.Code(err) != codes.Unauthenticated {
				t.Error(err)
			}
			want := time.Hour - 30*time.Second - ahead
			if took := time.Since(begun); took < want || took > want+time.Minute {
				t.Errorf("clock set by %v: the stream ended after %v, want %v", ahead, took, want)
			}
		})
	}
}

// A client with an expired or unverifiable identity gets nothing.
func TestUnverifiedIdentityIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := serve(t, access.Default())
		d.set(xds.Cluster, "1", "c")
		end := func() error {
			c := d.delta("a")
			c.Subscribe(xds.Cluster, "*")
			return c.ExpectEnd()
		}
		d.id.Expires = time.Now()
		if err := end(); status.Code(err) != codes.Unauthenticated {
			t.Error(err)
		}
		d.failed = errors.New("an invalid token")
		if err := end(); status.Code(err) != codes.Unauthenticated || len(d.denied) != 2 {
			t.Error(err, d.denied)
		}
		d.failed = status.Error(codes.Unavailable, "the keys cannot be had")
		if err := end(); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
	})
}
