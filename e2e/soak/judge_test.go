package soak

import (
	"maps"
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/xds"
)

// A server that makes one mistake fails in many stories. It does not fail in all of them,
// because later responses may make up for the mistake.
func TestJudge(t *testing.T) {
	last := filepath.Join(t.TempDir(), "last.txt")
	plain := features{"alias": true, "ondemand": true, "phantom": true, "ttl": true}
	for _, tt := range []struct {
		name  string
		wrong func() error // replaces the 15th response
	}{
		{"a response is lost", func() error { return nil }},
		{"a stream is ended", func() error { return status.Error(codes.Internal, "no reason") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noticed := 0
			const stories = 20
			for seed := range uint64(stories) {
				var n atomic.Int64
				bad := grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
					return next(srv, tampered{s, func(m any) error {
						if n.Add(1) == 15 {
							return tt.wrong()
						}
						return s.SendMsg(m)
					}})
				})
				if why, _ := inMemory(t, newStory(seed, plain), plain, last, bad); why != "" {
					noticed++
				}
			}
			t.Logf("noticed in %d of %d stories", noticed, stories)
			if noticed < stories/4 {
				t.Errorf("too few, want at least %d", stories/4)
			}
		})
	}
}

// tampered is a server's stream whose messages go through send.
type tampered struct {
	grpc.ServerStream
	send func(m any) error
}

func (s tampered) SendMsg(m any) error { return s.send(m) }

// A client may hold a resource that a new client does not get, but only while another
// resource that it may hold refers to it.
func TestJudgeOfWhatStays(t *testing.T) {
	k := kindOf(xds.Cluster)
	body := func(to ...string) held {
		return held{body: string(pack(k.body("a", "g1", to)).GetValue())}
	}
	loses := func(refuses bool) func(*sub) {
		return func(s *sub) {
			s.hears("2", "a", nil)
			delete(s.cache, "a")
			s.settles(true, "2", refuses)
		}
	}
	for _, tt := range []struct {
		name  string
		first held            // the cluster that the client accepted
		then  func(s *sub)    // the later events
		fresh map[string]held // the clusters of a new client
		right bool
	}{
		{"the client refuses the removal of the cluster", body("b"), loses(true), nil, true},
		{"the client accepts the removal of the cluster", body("b"), loses(false), nil, false},
		{"the client refuses the removal, and accepts it later", body("b"), func(s *sub) {
			s.hears("2", "a", nil)
			s.settles(true, "2", true)
			s.said["3"] = response{n: 3}
			s.hears("3", "a", nil)
			delete(s.cache, "a")
			s.settles(true, "3", false)
		}, nil, false},
		{"the client loses all resources, and may state an earlier version", body("b"), (*sub).losesAll, nil, true},
		{"the client loses all resources, and accepts a later response", body("b"), func(s *sub) {
			s.losesAll()
			s.hears("2", "a", nil)
			s.settles(true, "2", false)
		}, nil, false},
		{"the cluster refers to another name", body("c"), loses(true), nil, false},
		{"a new client has the same cluster", body("b"), func(*sub) {}, map[string]held{"a": body("b")}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			had := func(clusters map[string]held, assignments map[string]held) *client {
				c := &client{manner: manner{delta: true}, note: func(string, ...any) {}}
				cds, eds := newSub(xds.Cluster, xds.Wildcard), newSub(xds.Endpoint, xds.Wildcard)
				maps.Copy(cds.cache, clusters)
				maps.Copy(eds.cache, assignments)
				c.subs = []*sub{cds, eds}
				return c
			}
			c, fresh := had(map[string]held{"a": tt.first}, map[string]held{"b": {body: ""}}), had(tt.fresh, nil)
			s := c.sub(xds.Cluster)
			s.said["2"] = response{n: 2}
			tt.then(s)
			if wrong := c.differs(fresh, judging{renewed: true}); (wrong == "") != tt.right {
				t.Errorf("differs returns %q, want a difference: %v", wrong, !tt.right)
			}
		})
	}
}
