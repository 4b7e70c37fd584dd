package rest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) {
	if at := os.Getenv("POLL_SERVER"); at != "" {
		pollers(at)
		return
	}
	goleak.VerifyTestMain(m)
}

// What a poll that is held costs the server, in heap and in stacks, above the
// idle connection that it came on, with the clients in a process of their own:
//
//	go test -run '^$' -bench Held -benchtime 1x ./rest
func BenchmarkHeld(b *testing.B) {
	for b.Loop() {
		idle, held := held(b, 5000)
		b.ReportMetric(idle, "idle-B/conn")
		b.ReportMetric(held, "held-B/conn")
		b.ReportMetric(held-idle, "above-B/poll")
	}
}

func TestHeldMemory(t *testing.T) {
	t.Run("REST-4 a poll that is held", func(t *testing.T) {
		idle, held := held(t, 300)
		t.Logf("an idle connection has %.0f bytes, one with a poll that is held %.0f", idle, held)
		if held-idle > 2<<10 {
			t.Errorf("a poll that is held costs %.0f bytes", held-idle)
		}
	})
}

// held returns the bytes of an idle connection after a poll, and of a connection with a held poll.
func held(t testing.TB, n int) (idle, held float64) {
	st := store.New(store.WithEmptyGroups())
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Endpoint, "backend", nil))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	srv := server.New(st)
	lis, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a listener in a test
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: New(srv)}
	served := make(chan error, 1)
	go func() { served <- web.Serve(lis) }()
	defer func() {
		if err := srv.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		web.Close()
		<-served
	}()
	before := inUse()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "POLL_SERVER="+lis.Addr().String(), fmt.Sprint("POLL_CLIENTS=", n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next := func() {
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	next() // all are answered
	after := inUse()
	in.Write([]byte("x"))
	open := func(ok func(int) bool, what string) {
		for end := time.Now().Add(time.Minute); !ok(srv.Stats().Polls); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d of %d", what, srv.Stats().Polls, n)
			}
		}
	}
	open(func(m int) bool { return m == n }, "polls are held")
	all := inUse()
	per := func(m uint64) float64 { return float64(int64(m)-int64(before)) / float64(n) }
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	open(func(m int) bool { return m == 0 }, "polls are left") // REST-4: all is free
	return per(after), per(all)
}

// inUse returns the bytes of live heap and of stacks.
func inUse() uint64 {
	var m runtime.MemStats
	for range 5 { // stacks shrink by half each time
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// pollers runs in the other process: each client polls once, and on request again with its version.
func pollers(at string) {
	fail := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	n, err := strconv.Atoi(os.Getenv("POLL_CLIENTS"))
	fail(err)
	conns := make([]net.Conn, n)
	var version string
	send := func(i int, version string) {
		body := envoyPoll(fmt.Sprint("envoy-", i), version, "backend")
		_, err := fmt.Fprintf(conns[i], "POST /v3/discovery:endpoints HTTP/1.1\r\nHost: xds_rest\r\nx-envoy-internal: true\r\nx-forwarded-for: 127.0.0.1\r\n"+
			"x-envoy-expected-rq-timeout-ms: 60000\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s", len(body), body)
		fail(err)
	}
	for i := range conns {
		conns[i], err = net.Dial("tcp", at) //nolint:noctx // a client in a test
		fail(err)
		send(i, "")
		r, err := http.ReadResponse(bufio.NewReader(conns[i]), nil)
		fail(err)
		body, err := io.ReadAll(r.Body)
		fail(err)
		_, after, ok := bytes.Cut(body, []byte(`"versionInfo":"`))
		if !ok {
			panic(string(body))
		}
		version = string(after[:16])
	}
	os.Stdout.WriteString("!")
	io.ReadFull(os.Stdin, make([]byte, 1))
	for i := range conns {
		send(i, version)
	}
	io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(conns) // a connection that is garbage is closed
}

var extensions = sync.OnceValue(func() string {
	var all []string
	for i := range 516 {
		all = append(all, fmt.Sprintf(`{"name":"envoy.extensions.some.filter.number_%d","category":"envoy.filters.http","type_urls":["envoy.extensions.filters.http.some_%d.v3.Configuration"]}`, i, i))
	}
	return strings.Join(all, ",")
})

// envoyPoll returns a request of Envoy 1.40: 77 KB, most of them the list of its extensions.
func envoyPoll(node, version string, names ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"node":{"id":%q,"cluster":"edge","metadata":{"region":"a","role":"ingress"},"locality":{"region":"r","zone":"z"},"user_agent_name":"envoy",`+
		`"user_agent_build_version":{"version":{"major_number":1,"minor_number":40,"patch":0},"metadata":{"ssl.version":"BoringSSL","build.type":"RELEASE"}},"extensions":[`, node)
	b.WriteString(extensions())
	b.WriteString(`]},"resource_names":[`)
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q", n)
	}
	b.WriteByte(']')
	if version != "" {
		fmt.Fprintf(&b, `,"version_info":%q`, version)
	}
	b.WriteString(`,"type_url":"type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"}`)
	return b.Bytes()
}
