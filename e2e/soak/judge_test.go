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

// The judge is judged: a server that goes wrong once is noticed, but for stories
// in which nothing depends on that response any more when they come to rest.
func TestJudge(t *testing.T) {
	last := filepath.Join(t.TempDir(), "last.txt")
	plain := features{"alias": true, "ondemand": true, "phantom": true, "ttl": true}
	for _, tt := range []struct {
		name  string
		wrong func() error // in the place of a response
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
				t.Error("too few")
			}
		})
	}
}

// tampered is a stream of a server that sends as it is told to.
type tampered struct {
	grpc.ServerStream
	send func(m any) error
}

func (s tampered) SendMsg(m any) error { return s.send(m) }

// What stays on a client is right as long as something that it may have, and a new
// one is not told, refers to it; and wrong otherwise.
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
		then  func(s *sub)    // what becomes of it
		fresh map[string]held // of a new client
		right bool
	}{
		{"it refuses to lose the cluster", body("b"), loses(true), nil, true},
		{"it has lost the cluster", body("b"), loses(false), nil, false},
		{"it has refused the cluster, and accepted it later", body("b"), func(s *sub) {
			s.hears("2", "a", nil)
			s.settles(true, "2", true)
			s.said["3"] = response{n: 3}
			s.hears("3", "a", nil)
			delete(s.cache, "a")
			s.settles(true, "3", false)
		}, nil, false},
		{"it has lost everything, and may state a version of before", body("b"), (*sub).losesAll, nil, true},
		{"it has lost everything, and was told since", body("b"), func(s *sub) {
			s.losesAll()
			s.hears("2", "a", nil)
			s.settles(true, "2", false)
		}, nil, false},
		{"the cluster refers to another", body("c"), loses(true), nil, false},
		{"the cluster is what a new client has", body("b"), func(*sub) {}, map[string]held{"a": body("b")}, false},
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
				t.Errorf("the judge says %q", wrong)
			}
		})
	}
}
