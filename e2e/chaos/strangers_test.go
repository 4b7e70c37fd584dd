package chaos

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
)

// Rows in which strangers use up a shared limit.
var strangerRows = []row{
	{name: "SAFE-9 a stranger takes all that clients may hold", fast: true, fault: heldFull, setup: setup{server: func(_ *testing.T, s *server) { s.args = append(s.args, "--max-held-total", "32MiB") }}},
	{name: "SAFE-9 a stranger takes all watches of health", fast: true, fault: watchesFull},
}

// Eight streams of a stranger subscribe to 50,000 names each. The server holds the names of four
// streams.
func heldFull(r *rig) {
	names := make([]string, 50_000)
	for i := range names {
		names[i] = fmt.Sprintf("%0100d", i)
	}
	var held atomic.Int64
	r.strangers(8, long(20*time.Second, 3*time.Second), func(ctx context.Context, _ int) { r.holds(ctx, names, &held) })
	r.note("%d times 50,000 names", held.Load())
	if held.Load() <= 4 {
		r.t.Error("the bound was not reached")
	}
}

// A stranger watches health on 2,000 streams of 20 connections, and the server accepts 1,000.
// Clients at another address ask for health meanwhile.
func watchesFull(r *rig) {
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.from("127.0.0.4")))
	r.must(err)
	defer conn.Close()
	var open, refused, heard atomic.Int64
	r.strangers(21, long(20*time.Second, 3*time.Second), func(ctx context.Context, i int) {
		if i < 20 {
			r.watches(ctx, 100, &open, &refused)
			return
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		switch {
		case err == nil:
			heard.Add(1)
		case context.Cause(ctx) == nil:
			r.t.Errorf("who watches from elsewhere: %v", err)
		}
		pause(ctx, 100*time.Millisecond)
	})
	r.note("%d watches of a stranger, %d refused; another heard of health %d times", open.Load(), refused.Load(), heard.Load())
	if refused.Load() == 0 || heard.Load() == 0 {
		r.t.Error("the bound was not reached, or it kept another out")
	}
}

// watches has n watches of health on a connection until all are refused, or ctx is done.
func (r *rig) watches(ctx context.Context, n int, open, refused *atomic.Int64) {
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.from("127.0.0.2")))
	if err != nil {
		return
	}
	defer conn.Close()
	for range n {
		s, err := healthgrpc.NewHealthClient(conn).Watch(ctx, &healthgrpc.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		switch {
		case err == nil:
			open.Add(1)
		case ctx.Err() == nil:
			refused.Add(1)
			pause(ctx, 10*time.Millisecond)
		}
	}
	<-ctx.Done()
}
