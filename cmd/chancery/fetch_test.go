package main

import (
	"bytes"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/xdsclient"
)

// The error, hint and exit code for a server that denies access or does not support a variant.
func TestFetchHints(t *testing.T) {
	var says atomic.Uint32
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.Code(says.Load()), "says the server")
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(l) // until Stop
	}()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
	const denied = "the server denies access: is --node right, and does it require --tls-cert and --tls-key?\n"
	for _, x := range []struct {
		says       codes.Code
		flag, hint string
		code       int
	}{
		{codes.PermissionDenied, "--node=edge-1", denied, cli.NoServer},
		{codes.PermissionDenied, "--node-json={\"id\": \"edge-1\"}", denied, cli.NoServer},
		{codes.PermissionDenied, "--delta", "without --node the node id is the name of this machine: which nodes does the server accept, and does it require --tls-cert and --tls-key?\n", cli.NoServer},
		{codes.Unauthenticated, "--node=edge-1", denied, cli.NoServer},
		{codes.ResourceExhausted, "--delta", "the server, or this client, has a limit that was exceeded\n", cli.NoServer},
		{codes.Unimplemented, "--delta", "the server may not support delta: try without --delta\n", cli.Failed},
		{codes.Unimplemented, "--per-type", "the server may not have a stream for this type: try without --per-type\n", cli.Failed},
		{codes.Unimplemented, "--ads", "the server may not support ADS, or only delta: try --per-type, or --delta; or is it the port of an admin API?\n", cli.Failed},
		{codes.Internal, "--delta", "", cli.Failed},
	} {
		var out, errs bytes.Buffer
		says.Store(uint32(x.says))
		code := run([]string{"fetch", xdsclient.Scheme + l.Addr().String(), "cds", x.flag}, &out, &errs)
		if hint := "hint: " + x.hint; code != x.code || out.Len() > 0 || strings.Contains(errs.String(), "hint: ") != (x.hint != "") || x.hint != "" && !strings.HasSuffix(errs.String(), hint) {
			t.Errorf("%s %s: %d %s%s", x.says, x.flag, code, out.String(), errs.String())
		}
	}
}
