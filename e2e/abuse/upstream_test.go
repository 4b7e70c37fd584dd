package abuse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/e2e/harness"
	"github.com/chancery-xds/chancery/xds"
)

// A misbehaviour is what an upstream does on a stream of a relay that has its good resources. It ends with an error of
// the stream.
type misbehaviour struct {
	name  string
	short bool // part of the short form
	delta bool
	play  func(s *badStream) error
}

const upstreamLimit = 256 // MiB

var misbehaviours = []misbehaviour{
	{"endless names", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return s.response(s.clusters(i*5000, 5000)...) })
	}},
	{"added and removed", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte {
			b := s.response(s.clusters(i*5000, 5000)...)
			for k := range 5000 {
				if i > 0 {
					b = appendText(b, 6, fmt.Sprintf("bad-%d", (i-1)*5000+k))
				}
			}
			return b
		})
	}},
	{"versions of 1 MB", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return s.response(s.resource(fmt.Sprint("bad-", i), long, 0)) })
	}},
	{"names of 1 MB", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return s.response(s.resource(fmt.Sprint(i, long), "1", 0)) })
	}},
	{"nonces of 1 MB", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return appendText(s.response(s.clusters(i, 1)...), 5, fmt.Sprint(i, long)) })
	}},
	{"no type", false, false, func(s *badStream) error {
		return s.repeat(func(int) []byte { return appendText(s.response(s.clusters(0, 1000)...), 4, "") })
	}},
	{"types never asked", false, false, func(s *badStream) error {
		return s.repeat(func(i int) []byte {
			s.url = fmt.Sprintf("type.googleapis.com/some.Type%d", i)
			return s.response(s.clusters(0, 10_000)...)
		})
	}},
	{"deep nesting", false, true, func(s *badStream) error {
		var b []byte
		for len(b) < 100_000 { // a Struct in a Struct in the metadata
			b = appendBytes(nil, 5, appendBytes(nil, 1, appendText(nil, 1, "k")), appendBytes(nil, 1, appendBytes(nil, 2, b)))
		}
		meta := appendBytes(nil, 25, appendBytes(nil, 1, append(appendText(nil, 1, "k"), appendBytes(nil, 2, b)...)))
		return s.repeat(func(i int) []byte { return s.response(s.wrap(fmt.Sprint("bad-", i), "1", meta)) })
	}},
	{"many messages", false, true, func(s *badStream) error { // 2 bytes for each health check
		checks := slices.Repeat([]byte{8<<3 | 2, 0}, 3<<20)
		return s.repeat(func(i int) []byte { return s.response(s.wrap(fmt.Sprint("bad-", i), "1", checks)) })
	}},
	{"large control plane", false, true, func(s *badStream) error {
		return s.repeat(func(int) []byte { return appendBytes(s.response(), 7, appendText(nil, 1, strings.Repeat(long, 10))) })
	}},
	{"the same name", false, false, func(s *badStream) error {
		return s.repeat(func(int) []byte { return s.response(slices.Repeat(s.clusters(0, 1), 10_000)...) })
	}},
	{"aliases", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return s.response(s.resource(fmt.Sprint("bad-", i), "1", 10_000)) })
	}},
	{"removed names", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte {
			b := s.response()
			for k := range 1 << 20 {
				b = appendText(b, 6, fmt.Sprintf("%x", k+i<<20))
			}
			return b
		})
	}},
	{"empty resources", false, false, func(s *badStream) error {
		return s.repeat(func(int) []byte { return append(s.response(), slices.Repeat([]byte{2<<3 | 2, 0}, 4<<20)...) })
	}},
	{"two types", false, true, func(s *badStream) error { // the relay has not asked for listeners
		return s.repeat(func(i int) []byte {
			s.url = []string{xds.Cluster.URL, xds.Listener.URL}[i%2]
			return s.response(s.resource(fmt.Sprint("good-", i%7), fmt.Sprint(i), 0))
		})
	}},
	{"malformed messages", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return s.response(s.wrap(fmt.Sprint("bad-", i), "1", []byte{0xff})) })
	}},
	{"TTLs of a nanosecond", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte {
			return s.response(appendBytes(s.resource(fmt.Sprint("bad-", i%1000), fmt.Sprint(i), 0), 6, []byte{2 << 3, 1}))
		})
	}},
	{"error text of 1 MB", false, true, func(*badStream) error { return errors.New(long) }},
	{"a resource of 60 MB", true, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte {
			return s.response(s.wrap("bad", fmt.Sprint(i), appendText(nil, 28, strings.Repeat(long, 60))))
		})
	}},
	{"a million clusters", true, false, func(s *badStream) error {
		b := s.response(s.clusters(0, 1_000_000)...)
		return s.repeat(func(int) []byte { return b })
	}},
	{"a million clusters in small responses", true, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte { return s.response(s.clusters(i*5000%1_000_000, 5000)...) })
	}},
	{"TTLs of zero", false, true, func(s *badStream) error {
		return s.repeat(func(i int) []byte {
			return s.response(appendBytes(s.resource(fmt.Sprint("bad-", i%1000), fmt.Sprint(i), 0), 6, []byte{}))
		})
	}},
}

var long = strings.Repeat("x", 1_000_000)

// TestUpstream lets an upstream misbehave towards a relay under a memory limit.
func TestUpstream(t *testing.T) {
	for _, delta := range []bool{false, true} {
		t.Run(fmt.Sprintf("SAFE-14 SAFE-17 delta %v", delta), func(t *testing.T) { misbehave(t, delta) })
	}
}

func misbehave(t *testing.T, delta bool) {
	up := newBadUpstream(t)
	local := func() string { return fmt.Sprintf("127.0.0.1:%d", harness.FreePort(t)) }
	addr, admin := local(), local()
	url := "xds://" + up.addr + "?node=relay"
	if delta {
		url += "&delta"
	}
	name := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, "serve", url, "--listen", addr, "--admin-listen", admin, "--state-dir", t.TempDir(), "--log-format", "json")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), fmt.Sprintf("GOMEMLIMIT=%dMiB", upstreamLimit))
	harness.DieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() {
		if t.Failed() {
			t.Logf("the relay's log:\n%s", harness.Tail(name, 10))
		}
	}()
	harness.Eventually(t, 20*time.Second, "a client is served", func() error { return served(addr, delta, 2*time.Second) })
	for _, m := range misbehaviours {
		if m.delta != delta || !m.short && !*whole || *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", cmd.Process.Pid), []byte("5"), 0) // VmHWM begins again
		before := up.nacks.Load()
		up.begin(m.play)
		harness.Eventually(t, 20*time.Second, m.name, func() error {
			if up.bad.Load() == 0 {
				return errors.New("the relay opens no stream")
			}
			return nil
		})
		pause(context.Background(), time.Second)
		began := time.Now()
		if err := served(addr, delta, 5*time.Second); err != nil {
			t.Errorf("%s: a new client: %v", m.name, err)
		}
		answered := time.Since(began)
		began = time.Now()
		text, err := upstreamIn(admin)
		if err != nil {
			t.Errorf("%s: status: %v", m.name, err)
		}
		shown := time.Since(began)
		peak, _ := harness.Memory(cmd.Process.Pid, "VmHWM")
		t.Logf("%s: peak %.0f MiB, a new client after %.2f s, status after %.2f s, %d responses, %d NACKs, the last: %.200s; status: %.300s",
			m.name, peak, answered.Seconds(), shown.Seconds(), up.responses.Swap(0), up.nacks.Load()-before, up.nack(), text)
		if peak > upstreamLimit*1.1 {
			t.Errorf("%s: the peak of memory is %.0f MiB, more than 1.1 × %d MiB", m.name, peak, upstreamLimit)
		}
		if m.short {
			harness.Eventually(t, 10*time.Second, m.name+": status shows the limit", func() error {
				if text, err := upstreamIn(admin); !strings.Contains(text, "--max-upstream") {
					return errors.Join(fmt.Errorf("it shows %q", text), err)
				}
				return nil
			})
		}
		select {
		case <-ended:
			t.Fatalf("%s: the relay has ended", m.name)
		default:
		}
	}
	began := time.Now() // the last misbehaviour goes on
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		t.Logf("ended after %.2f s", time.Since(began).Seconds())
	case <-time.After(5 * time.Second):
		t.Error("the relay does not end within 5 s of SIGTERM")
		_ = cmd.Process.Kill()
		<-ended
	}
}

// upstreamIn returns the part of the status about the upstream.
func upstreamIn(admin string) (string, error) {
	status, err := (&http.Client{Timeout: 2 * time.Second}).Get("http://" + admin + "/api/v1/status")
	if err != nil {
		return "", err
	}
	defer status.Body.Close()
	b, err := io.ReadAll(status.Body)
	_, text, _ := strings.Cut(string(b), `"upstream"`)
	text, _, _ = strings.Cut(text, "}")
	return text, err
}

// served connects a client that must get the good clusters.
func served(addr string, delta bool, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return err
	}
	defer conn.Close()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: "client"}, TypeUrl: xds.Cluster.URL, ResourceNamesSubscribe: []string{"good-0", "good-1"}}); err != nil {
		return err
	}
	r, err := s.Recv()
	if err == nil && len(r.GetResources()) != 2 {
		err = fmt.Errorf("%d resources", len(r.GetResources()))
	}
	return err
}

// A badUpstream serves two good clusters, and then misbehaves.
type badUpstream struct {
	addr      string
	responses atomic.Int64
	nacks     atomic.Int64
	bad       atomic.Int64 // streams and responses of the misbehaviour

	mu   sync.Mutex
	last string
	play func(*badStream) error // nil: it does not misbehave
	next chan struct{}          // closed when play has changed
}

func newBadUpstream(t *testing.T) *badUpstream {
	u := &badUpstream{next: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(u.serve), grpc.MaxHeaderListSize(1<<24))
	u.addr = l.Addr().String()
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	return u
}

func (u *badUpstream) begin(play func(*badStream) error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.play = play
	u.bad.Store(0)
	close(u.next)
	u.next = make(chan struct{})
}

func (u *badUpstream) nack() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

// serve is a stream. When a misbehaviour begins, its predecessor ends with its stream.
func (u *badUpstream) serve(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	s := &badStream{up: u, stream: stream, delta: strings.Contains(method, "Delta"), url: xds.Cluster.URL}
	asked := make(chan string, 1000)
	go func() {
		defer close(asked)
		for {
			var b []byte
			if stream.RecvMsg(&b) != nil {
				return
			}
			var req discovery.DeltaDiscoveryRequest
			var state discovery.DiscoveryRequest
			var url, nonce, text string
			if s.delta {
				_ = proto.Unmarshal(b, &req)
				url, nonce, text = req.TypeUrl, req.ResponseNonce, req.ErrorDetail.GetMessage()
			} else {
				_ = proto.Unmarshal(b, &state)
				url, nonce, text = state.TypeUrl, state.ResponseNonce, state.ErrorDetail.GetMessage()
			}
			if text != "" {
				u.nacks.Add(1)
				u.mu.Lock()
				u.last = text
				u.mu.Unlock()
			}
			if nonce == "" {
				select {
				case asked <- url:
				default:
				}
			}
		}
	}()
	u.mu.Lock()
	play, next := u.play, u.next
	u.mu.Unlock()
	began := false
	for {
		select {
		case url, ok := <-asked:
			if !ok {
				return nil
			}
			s.url = url
			var good [][]byte
			if url == xds.Cluster.URL {
				good = [][]byte{s.resource("good-0", "1", 0), s.resource("good-1", "1", 0)}
			}
			if err := s.send(s.response(good...)); err != nil {
				return err
			}
			if url == xds.Cluster.URL && play != nil && !began {
				began = true
				s.url, s.next = xds.Cluster.URL, next
				err := play(s)
				u.bad.Add(1)
				if err != nil {
					return err
				}
			}
		case <-next:
			return errors.New("the next misbehaviour begins")
		}
	}
}

// A badStream is a stream of a badUpstream.
type badStream struct {
	up     *badUpstream
	stream grpc.ServerStream
	delta  bool
	url    string
	nonce  int
	next   chan struct{}
}

func (s *badStream) send(b []byte) error {
	s.up.responses.Add(1)
	return s.stream.SendMsg(&b)
}

// repeat sends responses until the next misbehaviour begins.
func (s *badStream) repeat(response func(i int) []byte) error {
	for i := 0; ; i++ {
		select {
		case <-s.next:
			return errors.New("the next misbehaviour begins")
		default:
		}
		if err := s.send(response(i)); err != nil {
			return err
		}
		s.up.bad.Add(1)
	}
}

// response returns a response without its end.
func (s *badStream) response(resources ...[]byte) []byte {
	s.nonce++
	b := appendText(nil, 1, fmt.Sprint(s.nonce))
	b = appendText(b, 4, s.url)
	b = appendText(b, 5, fmt.Sprint(s.nonce))
	return appendBytes(b, 2, resources...)
}

// wrap returns a resource with a name and a body after the name.
func (s *badStream) wrap(name, version string, more []byte) []byte {
	body := append(appendText(nil, 1, name), more...)
	b := appendBytes(appendText(nil, 1, s.url), 2, body)
	if !s.delta {
		return b
	}
	b = appendBytes(nil, 2, b)
	return appendText(appendText(b, 3, name), 1, version)
}

func (s *badStream) resource(name, version string, aliases int) []byte {
	b := s.wrap(name, version, nil)
	for i := range aliases {
		b = appendText(b, 4, fmt.Sprint(name, "-", i))
	}
	return b
}

func (s *badStream) clusters(first, n int) (all [][]byte) {
	if !s.delta { // it is a full state
		all = append(all, s.resource("good-0", "1", 0), s.resource("good-1", "1", 0))
	}
	for i := range n {
		all = append(all, s.resource(fmt.Sprintf("bad-%d", first+i), "1", 0))
	}
	return all
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendBytes(b []byte, field protowire.Number, all ...[]byte) []byte {
	for _, v := range all {
		b = protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
	}
	return b
}

// bytesCodec passes encoded messages on.
type bytesCodec struct{}

var _ encoding.CodecV2 = bytesCodec{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (bytesCodec) Unmarshal(b mem.BufferSlice, v any) error {
	*v.(*[]byte) = b.Materialize()
	return nil
}
