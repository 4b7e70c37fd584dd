package soak

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
