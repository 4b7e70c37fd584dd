//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// idle opens an HTTP/2 connection without requests. The server may have closed it.
func idle(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_, _ = io.WriteString(c, http2.ClientPreface)
	_ = http2.NewFramer(c, nil).WriteSettings()
	return c
}

// from dials from another address of this machine.
func from(ip string, address string, t *testing.T) *grpc.ClientConn {
	t.Helper()
	return dialBy(t, address, &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}})
}

// metrics returns the body of /metrics.
func (d *runningServer) metrics() string {
	d.Helper()
	r, err := http.Get("http://" + d.http + "/metrics")
	if err != nil {
		d.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		d.Fatal(err)
	}
	return string(b)
}

// "fd limit 300 with 1,000 idle connections: /healthz answers within 100 ms", files are loaded, and
// clients from other addresses are served.
func TestReserveOfFileDescriptors(t *testing.T) {
	few := []string{"sh", "-c", `ulimit -n 300 && exec "$0" "$@"`}
	for _, c := range []struct {
		what  string
		flags []string
		at    func(*runningServer) string // the flooded address
	}{
		{"SAFE-9 idle connections leave room for health, reloads and other clients", nil, func(d *runningServer) string { return d.conn.Target() }},
		{"SAFE-9 so do those for health", nil, func(d *runningServer) string { return d.http }},
	} {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "a.yaml", cluster("a"))
			d := serveUnder(t, few, dir, append(c.flags, "--metrics-listen", "127.0.0.1:0")...)
			for range 1000 {
				idle(t, c.at(d))
			}
			var took []time.Duration
			for range 10 {
				begin := time.Now()
				// From another address: the kubelet does not share the address of a client.
				web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.3")}}).DialContext}}
				r, err := web.Get("http://" + d.http + "/healthz")
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				took = append(took, time.Since(begin))
			}
			if slices.Sort(took); took[5] > 100*time.Millisecond {
				t.Errorf("/healthz took %v", took)
			}
			write(t, dir, "b.yaml", cluster("b"))
			d.conn = from("127.0.0.2", d.conn.Target(), t)
			d.logged("loaded")
			d.clusters().gets("a", "b")
		})
	}
}

func TestMaxConnections(t *testing.T) {
	t.Parallel()
	t.Run("SAFE-9 a limit of connections: flag, metric, log", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--max-connections", "3", "--metrics-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
		for range 4 {
			idle(t, d.conn.Target())
		}
		const closed = "too many connections: closed one from the address with the most"
		if line := d.logged(closed); fmt.Sprintf("%v, %v, %v", line["connections"], line["open"], line["repeated"]) != "of clients, 3, <nil>" {
			t.Error(line)
		}
		d.conn = from("127.0.0.2", d.conn.Target(), t) // the new connection replaces one of the idle ones
		d.clusters().gets("a")
		if line := d.logged(closed); line["repeated"] != 1.0 {
			t.Errorf("a connection was closed since: %v", line)
		}
		m := d.metrics()
		for _, want := range []string{"xds_server_connections 3\n", "xds_server_connections_closed_total 2\n"} {
			if !strings.Contains(m, want) {
				t.Errorf("no %q", want)
			}
		}
	})
	t.Run("SAFE-14 a client that has answered outlasts a flood of its own address", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "a.yaml", cluster("a"))
		d := serveDir(t, dir, "--max-connections", "8")
		c := d.clusters()
		c.gets("a")
		write(t, dir, "b.yaml", cluster("b"))
		c.gets("a", "b") // the server has read the first ACK
		for range 20 {
			idle(t, d.conn.Target())
		}
		d.logged("too many connections: closed one from the address with the most")
		write(t, dir, "c.yaml", cluster("c"))
		c.gets("a", "b", "c")
	})
	t.Run("SAFE-9 places are given back", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--max-connections", "1"}, "a.yaml", cluster("a"))
		for range 5 {
			conn := dialBy(t, d.conn.Target(), &net.Dialer{})
			d.conn = conn
			d.clusters().gets("a")
			conn.Close()
		}
	})
}

func dialBy(t *testing.T, address string, dialer *net.Dialer) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), // the server closes the one before when it notices
		grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", a) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}
