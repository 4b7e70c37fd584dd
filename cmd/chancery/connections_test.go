//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/internal/daemon/procmetrics"
	"github.com/chancery-xds/chancery/internal/listen"
	"github.com/chancery-xds/chancery/store"
)

// idle opens a connection of HTTP/2 on which nothing happens. The server may have
// closed it.
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

// metrics returns what /metrics says.
func (d *daemon) metrics() string {
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

// "fd limit 300 with 1,000 idle connections: /healthz answers within 100 ms", and files
// are loaded, and who comes from elsewhere is served.
func TestReserveOfFiles(t *testing.T) {
	few := []string{"sh", "-c", `ulimit -n 300 && exec "$0" "$@"`}
	for _, c := range []struct {
		what  string
		flags []string
		at    func(*daemon) string // what is flooded
	}{
		{"SAFE-9 idle connections leave room for health, reloads and other clients", nil, func(d *daemon) string { return d.conn.Target() }},
		{"SAFE-9 so do those for health", nil, func(d *daemon) string { return d.http }},
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
				// Of another address: kubelet's is not a client's.
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
		d.conn = from("127.0.0.2", d.conn.Target(), t) // takes the place of one of them
		d.clusters().gets("a")
		if line := d.logged(closed); line["repeated"] != 1.0 {
			t.Errorf("one was closed since: %v", line)
		}
		m := d.metrics()
		for _, want := range []string{"xds_server_connections 3\n", "xds_server_connections_closed_total 2\n"} {
			if !strings.Contains(m, want) {
				t.Errorf("no %q", want)
			}
		}
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

// several is a listener to which so many connect, and then no more.
type several struct {
	net.Listener
	n int
}

func (l *several) Accept() (net.Conn, error) {
	if l.n--; l.n < 0 {
		return nil, net.ErrClosed
	}
	c, _ := net.Pipe()
	return c, nil
}

// SAFE-9: who asks for health and metrics has a part of the files that are kept back, and
// not all of them.
func TestRoomForProbes(t *testing.T) {
	s, files := &serving{log: slog.New(slog.DiscardHandler)}, listen.Files{Soft: 300}
	_, probes := s.connections(files, procmetrics.New(procmetrics.Options{Snapshot: store.New().Snapshot}))
	l := probes.On(&several{n: files.Reserve()})
	for {
		if _, err := l.Accept(); err != nil {
			break
		}
	}
	if n := probes.Open(); n != files.Reserve()/4 {
		t.Errorf("%d are open of %d", n, files.Reserve())
	}
}

// SAFE-9: whoever asks for more connections than there are files gets what there is room for;
// that these are few for a fleet is a warning.
func TestRoomForConnections(t *testing.T) {
	const low, cut = "level=WARN msg=\"the limit of open files is low: it limits how many clients can connect\" ", "level=WARN msg=\"--max-connections was lowered to what the limit of open files allows\" "
	const enough, more = "level=INFO msg=\"limit of open files\" ", " hint=\"raise the hard limit: LimitNOFILE= of systemd, ulimit -Hn\"\n"
	for _, tt := range []struct {
		asked int
		files uint64
		want  string
	}{
		{0, 300, low + "files=300 clients=236" + more},
		{100, 300, low + "files=300 clients=100" + more},
		{1000, 300, low + "files=300 clients=236" + more + cut + "asked=1000 clients=236" + more},
		{0, 65_536, enough + "files=65536 clients=64512\n"},
		{64_512, 65_536, enough + "files=65536 clients=64512\n"},
		{64_513, 65_536, enough + "files=65536 clients=64512\n" + cut + "asked=64513 clients=64512" + more},
		{100, 0, ""}, // which is not known
	} {
		var out bytes.Buffer
		s := &serving{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
		s.limits.connections = tt.asked
		s.connections(listen.Files{Soft: tt.files}, procmetrics.New(procmetrics.Options{Snapshot: store.New().Snapshot}))
		if got := out.String(); got != tt.want {
			t.Errorf("--max-connections %d of %d files: %q, want %q", tt.asked, tt.files, got, tt.want)
		}
	}
}
