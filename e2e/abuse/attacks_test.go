package abuse

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/xds"
)

// An attack runs on one connection after the other until the context ends. It returns when its connection is of no
// more use. It calls step before each of its steps, which keeps it to its rate.
type attack struct {
	name  string
	conns int // connections at a time
	rate  int // steps in a second, of all connections
	step  string
	run   func(ctx context.Context, a *attacker) error

	on listener
}

// A listener is what an attack is against.
type listener int

const (
	onXDS listener = iota
	onTLS          // the listeners of xDS have TLS
	onREST
	onMetrics
	onAdmin
)

// An attacker is the process of the attack.
type attacker struct {
	attack
	from, to string
	whole    context.Context // of the whole attack
	steps    atomic.Int64
	errors   atomic.Int64
	began    time.Time
}

var attacks = []attack{
	{"streams", 4, 20_000, "a stream with one request, left open", calls(adsSotW, request("", "")), onXDS},
	{"resets", 4, 20_000, "a stream with one request, reset at once", resets, onXDS},
	{"headers", 8, 5_000, "a block of 16 KiB of headers: without an end on every other connection, else as a stream of 60 KiB", endlessHeaders, onXDS},
	{"pings", 8, 50_000, "a SETTINGS and a PING frame, answers unread", controlFrames, onXDS},
	{"windows", 4, 10_000, "a stream that requests all resources with a window of no byte, or a WINDOW_UPDATE of one byte", shutWindows, onXDS},
	{"slow", 50, 5_000, "a byte of one of 200 requests on a connection", slowBodies, onXDS},
	{"half", 200, 2_000, "16 KiB of a request of 16 MiB that does not end", halfRequests, onXDS},
	{"acks", 20, 20_000, "an ACK or NACK of the last response", answers, onXDS},
	{"names", 20, 100, "a request with a name of 1 MB, or with 16,000 names", largeNames, onXDS},
	{"reconnects", 50, 1_000, "a connection with a stream of all resources, closed at the first response", reconnects, onXDS},
	{"idle", 4, 2_000, "a connection without bytes, or with the first bytes of HTTP/2, left open", held("", preface), onXDS},
	{"zombies", 4, 1_000, "a stream of all resources with a window of no byte, 100 on a connection, left open", zombies, onXDS},
	{"delta", 20, 2_000, "100 names of delta less and 100 others more, on 20 streams", deltaNames, onXDS},
	{"types", 8, 10_000, "a request for one of 60 types on a stream", manyTypes, onXDS},
	{"nodes", 4, 200, "a stream with a node of 200 KB, left open", nodes, onXDS},
	{"junk", 8, 50_000, "an unknown frame, a PRIORITY, empty DATA, or a WINDOW_UPDATE", junk, onXDS},
	{"ended", 4, 20_000, "a stream whose request is its end", halfClosed, onXDS},
	{"fetches", 4, 20_000, "a Fetch of an unknown version", calls(fetchCDS, request("1", "")), onXDS},
	{"watches", 4, 20_000, "a watch of the health service, left open", calls(healthWatch, message(nil)), onXDS},
	{"polls", 4, 1_000, "a REST poll on a connection of its own, left open", held(post(pollBody) + pollBody), onREST},
	{"bodies", 4, 1_000, "the first half of a REST poll, or of its headers, left open", held(post(pollBody)+"{", post(pollBody)[:40]), onREST},
	{"handshakes", 20, 500, "a TLS handshake, or the first bytes of one, left open", handshakes, onTLS},
	{"metrics", 4, 1_000, "a connection to metrics: without bytes, with half a request, or with an unread answer", held("", "GET /met", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), onMetrics},
	{"admin", 4, 1_000, "the same to the admin API", held("", "GET /api", "GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n"), onAdmin},
}

// main is the whole program of the attacker's process.
func (a *attacker) main(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	a.began, a.whole = time.Now(), ctx
	done := make(chan struct{})
	for range a.conns {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				own, end := context.WithCancel(ctx)
				if err := a.run(own, a); err != nil && ctx.Err() == nil {
					a.errors.Add(1)
					pause(ctx, 20*time.Millisecond)
				}
				end()
			}
		}()
	}
	for range a.conns {
		<-done
	}
	fmt.Fprintf(os.Stdout, "%d %d\n", a.steps.Load(), a.errors.Load())
}

// next waits until the rate allows another step.
func (a *attacker) next(ctx context.Context) error {
	due := time.Duration(a.steps.Add(1)) * time.Second / time.Duration(a.rate)
	if wait := due - time.Since(a.began); wait > 2*time.Millisecond {
		pause(ctx, wait)
	}
	return ctx.Err()
}

// repeat makes n steps at the rate of the attack, or until an error.
func (a *attacker) repeat(ctx context.Context, n int, step func(i int) error) error {
	for i := range n {
		if err := a.next(ctx); err != nil {
			return err
		}
		if err := step(i); err != nil {
			return err
		}
	}
	return nil
}

// endless is the number of steps until an error.
const endless = math.MaxInt

// dial opens a connection, which closes when the context ends. The context of run ends when run returns.
func (a *attacker) dial(ctx context.Context, read reader, s ...http2.Setting) (*peer, error) {
	return dial(ctx, a.from, a.to, read, s...)
}

// stream opens a connection and a stream with the beginning of its data.
func (a *attacker) stream(ctx context.Context, read reader, data []byte) (*peer, error) {
	p, err := a.dial(ctx, read)
	if err == nil {
		err = p.open(data)
	}
	return p, err
}

// openStreams opens n streams with the same beginning on a connection, and leaves them open.
func (a *attacker) openStreams(ctx context.Context, p *peer, n int, data []byte) error {
	return a.repeat(ctx, n, func(int) error { return p.open(data) })
}

// shut is a window of no byte for each stream.
var shut = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// request is a request for all clusters.
func request(version, nonce string, names ...string) []byte {
	b, err := proto.Marshal(&discovery.DiscoveryRequest{
		Node: &core.Node{Id: "attacker"}, TypeUrl: xds.Cluster.URL, VersionInfo: version, ResponseNonce: nonce, ResourceNames: names,
	})
	if err != nil {
		panic(err)
	}
	return message(b)
}

// perConn is the number of streams that a connection may have.
const perConn = 10_000

func resets(ctx context.Context, a *attacker) error {
	p, err := a.dial(ctx, nil)
	if err != nil {
		return err
	}
	data := request("", "")
	return a.repeat(ctx, endless, func(int) error {
		return cmp.Or(p.open(data), p.send(func() error { return p.WriteRSTStream(p.id, http2.ErrCodeCancel) }))
	})
}

func endlessHeaders(ctx context.Context, a *attacker) error {
	p, err := a.dial(ctx, nil)
	if err != nil {
		return err
	}
	filler := strings.Repeat("x", 15<<10)
	if a.steps.Load()%2 == 0 {
		part := headers("x-filler " + filler)
		if err := p.send(func() error {
			return p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: part})
		}); err != nil {
			return err
		}
		return a.repeat(ctx, endless, func(int) error {
			return p.send(func() error { return p.WriteContinuation(1, false, part) })
		})
	}
	p.block = headers("a "+filler, "b "+filler, "c "+filler, "d "+filler)
	for range perConn {
		for range 3 {
			if err := a.next(ctx); err != nil {
				return err
			}
		}
		err := p.send(func() error {
			p.id = max(p.id+2, 3) | 1
			rest := p.block
			err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.id, BlockFragment: rest[:16<<10]})
			for rest = rest[16<<10:]; err == nil && len(rest) > 0; {
				n := min(len(rest), 16<<10)
				err = p.WriteContinuation(p.id, n == len(rest), rest[:n])
				rest = rest[n:]
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func controlFrames(ctx context.Context, a *attacker) error {
	p, err := a.stream(ctx, func(*peer, http2.Frame) { <-ctx.Done() }, request("", ""))
	if err != nil {
		return err
	}
	return a.repeat(ctx, endless, func(i int) error {
		return p.send(func() error {
			return cmp.Or(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(1 + i%100)}), p.WritePing(false, [8]byte{byte(i)}))
		})
	})
}

func shutWindows(ctx context.Context, a *attacker) error {
	p, err := a.dial(ctx, nil, shut)
	if err != nil {
		return err
	}
	if err := a.openStreams(ctx, p, perConn, request("", "")); err != nil {
		return err
	}
	return a.repeat(ctx, 3*perConn, func(i int) error {
		return p.send(func() error { return p.WriteWindowUpdate(uint32(i%perConn)*2+1, 1) })
	})
}

func slowBodies(ctx context.Context, a *attacker) error {
	p, err := a.dial(ctx, nil)
	if err != nil {
		return err
	}
	const streams = 200
	whole := request("", "", strings.Repeat("n", 4000))
	for range streams {
		if err := p.open(whole[:1]); err != nil {
			return err
		}
	}
	return a.repeat(ctx, streams*(len(whole)-1), func(i int) error {
		at := 1 + i/streams
		return p.write(uint32(i%streams)*2+1, whole[at:at+1])
	})
}

func halfRequests(ctx context.Context, a *attacker) error {
	windows := make(chan int, 4096)
	p, err := a.stream(ctx, func(_ *peer, f http2.Frame) {
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID != 0 {
			select {
			case windows <- int(w.Increment):
			default:
			}
		}
	}, []byte{0, 1, 0, 0, 0})
	if err != nil {
		return err
	}
	part := make([]byte, 16<<10)
	for room, sent := 65535-5, 0; sent < 1<<24-1; {
		n := min(len(part), room, 1<<24-1-sent)
		if n == 0 {
			select {
			case more := <-windows:
				room += more
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
				return io.ErrNoProgress
			}
			continue
		}
		if err := a.next(ctx); err != nil {
			return err
		}
		if err := p.write(1, part[:n]); err != nil {
			return err
		}
		room, sent = room-n, sent+n
	}
	return nil
}

// answers reads the first response, and accepts and refuses it in turn for as long as it can.
func answers(ctx context.Context, a *attacker) error {
	said := make(chan [2]string, 1)
	var body []byte
	p, err := a.stream(ctx, func(p *peer, f http2.Frame) {
		d, ok := f.(*http2.DataFrame)
		if !ok {
			return
		}
		body = append(body, d.Data()...)
		version, nonce, rest, ok := response(body)
		if body = rest; ok {
			select {
			case said <- [2]string{version, nonce}:
			default:
			}
		}
		_ = p.send(func() error {
			_ = p.WriteWindowUpdate(0, max(1, d.Length))
			return p.WriteWindowUpdate(d.StreamID, max(1, d.Length))
		})
	}, request("", ""))
	if err != nil {
		return err
	}
	var last [2]string
	select {
	case last = <-said:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
		return io.ErrNoProgress
	}
	return a.repeat(ctx, endless, func(i int) error {
		select {
		case last = <-said:
		default:
		}
		var names []string
		if i%3 == 1 {
			names = []string{fmt.Sprint("name-", i%1000)} // another subscription, which needs a response
		}
		return p.write(p.id, request(last[0], last[1], names...))
	})
}

// response reads version and nonce of the first whole message of b, and returns the bytes that are not read.
func response(b []byte) (version, nonce string, rest []byte, ok bool) {
	if len(b) < 5 {
		return "", "", b, false
	}
	n := int(b[1])<<24 | int(b[2])<<16 | int(b[3])<<8 | int(b[4])
	if len(b) < 5+n {
		return "", "", b, false
	}
	for m := b[5 : 5+n]; len(m) > 0; {
		num, typ, k := protowire.ConsumeTag(m)
		if k < 0 {
			break
		}
		m = m[k:]
		if typ == protowire.BytesType && (num == 1 || num == 5) {
			v, _ := protowire.ConsumeBytes(m)
			if num == 1 {
				version = string(v)
			} else {
				nonce = string(v)
			}
		}
		k = protowire.ConsumeFieldValue(num, typ, m)
		if k < 0 {
			break
		}
		m = m[k:]
	}
	return version, nonce, append([]byte(nil), b[5+n:]...), true
}

// largeNames sends whole requests as fast as the windows allow.
func largeNames(ctx context.Context, a *attacker) error {
	many := make([]string, 16_000)
	for i := range many {
		many[i] = fmt.Sprintf("%060d", i)
	}
	data := [][]byte{request("", "", strings.Repeat("n", 1<<20)), request("", "", many...)}
	p, err := a.dial(ctx, nil)
	if err != nil {
		return err
	}
	if err := a.next(ctx); err != nil {
		return err
	}
	if err := p.openLarge(ctx, data[a.steps.Load()%2]); err != nil {
		return err
	}
	pause(ctx, time.Second)
	return nil
}

func reconnects(ctx context.Context, a *attacker) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := a.stream(ctx, func(_ *peer, f http2.Frame) {
		if _, ok := f.(*http2.DataFrame); ok {
			cancel()
		}
	}, request("", ""))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
