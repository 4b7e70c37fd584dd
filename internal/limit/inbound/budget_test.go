package inbound

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"

	"github.com/chancery-xds/chancery/internal/limit/rate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const k = 1 << 10

// A rig is a budget with a record of its refusals.
type rig struct {
	*testing.T
	*Budget
	mu      sync.Mutex
	refused []string
	hasty   atomic.Int64 // connections
}

func within(t *testing.T, what string, maxBytes int, f func(*rig)) {
	t.Run(what, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{T: t}
			owners := rate.NewOwners(10, 100_000)
			r.Budget = NewBudget(Bounds{
				Bytes: maxBytes, Stall: 20 * time.Second, Streams: 100,
				Refused: func(peer net.Addr, why Reason) {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.refused = append(r.refused, fmt.Sprint(peer, ": ", why))
				},
				Pace:  func(peer net.Addr) *rate.Shared { return owners.Of(peer.String(), peer) },
				Hasty: func(net.Addr) { r.hasty.Add(1) },
			})
			f(r)
		})
	})
}

type address string

func (a address) Network() string { return string(a) }
func (a address) String() string  { return string(a) }

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	at address
}

func (a addressed) RemoteAddr() net.Addr { return a.at }

// A peer is a client, with a goroutine that reads its bytes when the budget allows.
type peer struct {
	*rig
	net.Conn
	server *Conn
	sent   chan []byte
	left   atomic.Int64 // bytes that have not been read
	dead   atomic.Bool
}

// from connects a client that opens a stream.
func (r *rig) from(at address) *peer {
	near, far := net.Pipe()
	p := &peer{rig: r, Conn: near, server: r.Conn(addressed{far, at}, true), sent: make(chan []byte, 100)}
	go func() {
		for {
			if b, _, err := p.server.ReadOnReady(16*k, mem.DefaultBufferPool()); err != nil {
				p.server.Close()
				return
			} else {
				mem.DefaultBufferPool().Put(b)
			}
		}
	}()
	go func() {
		for b := range p.sent {
			n, err := near.Write(b)
			p.left.Add(-int64(n))
			p.dead.Store(err != nil)
		}
	}()
	r.Cleanup(func() { close(p.sent); near.Close(); p.server.Close() })
	p.say(newTalk().open(1, false).Bytes())
	return p
}

func (p *peer) say(b []byte) {
	p.left.Add(int64(len(b)))
	p.sent <- b
	synctest.Wait()
}

// begin sends n bytes of a request of size bytes; more sends more of it.
func (p *peer) begin(size, n int) { p.more(1, beginning(size, n)) }

func (p *peer) more(stream uint32, b []byte) {
	for part := range slices.Chunk(b, 16*k) {
		p.say(newTalk().data(stream, false, part).Bytes()[preface:])
	}
}

func (p *peer) send(n int) { p.more(1, make([]byte, n)) }

// is checks the state of the sent bytes.
func (p *peer) is(want string) {
	p.Helper()
	synctest.Wait()
	got := "read"
	switch {
	case p.dead.Load():
		got = "closed"
	case p.left.Load() > 0:
		got = "waiting"
	}
	if got != want {
		p.Errorf("%v is %s (%d bytes), want %s", p.server.RemoteAddr(), got, p.left.Load(), want)
	}
}

func (r *rig) refuses(want ...string) {
	r.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.refused, want) {
		r.Errorf("refused %q, want %q", r.refused, want)
	}
}

func TestBudget(t *testing.T) {
	within(t, "SAFE-9 connections take turns when there is no room, and each completes its request", 400*k, func(r *rig) {
		a, b := r.from("a"), r.from("b")
		b.begin(300*k, 90*k)
		a.begin(300*k, 90*k) // the shared room is used up, and a is the first to ask
		a.send(50 * k)
		a.is("read")
		b.send(50 * k)
		b.is("waiting")
		small := r.from("c")
		small.begin(60*k, 60*k)
		small.is("read") // no byte of small counts
		a.send(160 * k)
		a.is("read")
		b.is("read")
		b.send(160 * k)
		b.is("read")
		if r.Used() != 0 {
			r.Errorf("%d bytes are used", r.Used())
		}
		r.refuses()
	})
	within(t, "SAFE-9 a connection that sends nothing more loses the turn when others wait", 400*k, func(r *rig) {
		a, b := r.from("a"), r.from("b")
		b.begin(300*k, 90*k)
		a.begin(300*k, 90*k)
		b.send(210 * k)
		b.is("waiting")
		time.Sleep(2*tick + time.Millisecond)
		b.is("read")
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 so does a connection without the turn that holds bytes and sends nothing", 64<<20, func(r *rig) {
		idle, a, b := r.from("idle"), r.from("a"), r.from("b")
		idle.begin(60<<20, 15<<20)
		b.begin(2<<20, 60*k)
		a.begin(60<<20, 2<<20)
		b.send(500 * k)
		b.is("waiting")
		time.Sleep(tick / 2)
		for range 3 {
			a.send(2 << 20)
			time.Sleep(tick)
		}
		r.refuses("idle: " + string(TooSlow))
		a.is("read")
		b.is("read")
	})
	within(t, "SAFE-9 a connection that sends fast keeps the turn", 64<<20, func(r *rig) {
		a, b := r.from("a"), r.from("b")
		b.begin(60<<20, 15<<20)
		a.begin(60<<20, 2<<20)
		b.send(1 << 20)
		b.is("waiting")
		time.Sleep(tick / 2) // so that bytes do not arrive at the moment of a check
		for range 20 {
			a.send(2 << 20)
			time.Sleep(tick)
		}
		a.is("read")
		b.is("waiting")
		r.refuses()
	})
	within(t, "SAFE-9 a request that is never complete ends its connection", 400*k, func(r *rig) {
		a := r.from("a")
		a.begin(300*k, 70*k)
		time.Sleep(19 * time.Second)
		a.is("read")
		r.refuses()
		time.Sleep(tick + tick/2)
		r.refuses("a: " + string(TooSlow))
		if r.Used() != 0 {
			r.Errorf("%d bytes are used", r.Used())
		}
	})
	within(t, "SAFE-9 a request that arrives slowly but steadily is accepted", 4<<20, func(r *rig) {
		a := r.from("a")
		a.begin(2<<20, 70*k)
		before := r.Progress(address("a"), 1)
		for range 30 {
			time.Sleep(15*time.Second + tick/2)
			a.send(65 * k)
		}
		r.refuses()
		if now := r.Progress(address("a"), 1); before != 70*k || now != (70+30*65)*k {
			r.Errorf("progress %d, then %d", before, now)
		}
		if n := r.Progress(address("a"), 3); n != 0 {
			r.Errorf("progress %d of a stream without new bytes", n)
		}
		a.send(28 * k)
		if r.Progress(address("a"), 1) != 0 || r.Used() != 0 {
			r.Error(r.Progress(address("a"), 1), r.Used())
		}
		time.Sleep(time.Hour)
		r.refuses()
	})
	within(t, "SAFE-9 one connection may hold the whole budget, and not more", 400*k, func(r *rig) {
		a := r.from("a")
		for i := range uint32(5) {
			a.say(newTalk().open(3+2*i, false).Bytes()[preface:])
			a.more(3+2*i, beginning(300*k, 90*k))
		}
		a.is("closed")
		r.refuses("a: " + string(TooMuch))
	})
	within(t, "SAFE-9 the turn moves from address to address", 400*k, func(r *rig) {
		a, a2, b := r.from("a"), r.from("a"), r.from("b")
		a2.begin(300*k, 60*k)
		b.begin(300*k, 60*k)
		a.begin(300*k, 150*k)
		a2.send(30 * k)
		b.send(30 * k)
		a2.is("waiting")
		b.is("waiting")
		a.send(150 * k)
		b.is("read")
		b.send(100 * k)
		b.is("read")
		a2.send(100 * k)
		a2.is("waiting")
	})
	within(t, "SAFE-9 so does the second request, whatever came before", 400*k, func(r *rig) {
		a := r.from("a")
		a.begin(300*k, 300*k)
		a.begin(300*k, 70*k)
		time.Sleep(19 * time.Second)
		r.refuses()
		time.Sleep(tick + tick/2)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 so does a small request after an idle time", 400*k, func(r *rig) {
		a := r.from("a")
		a.begin(10*k, 5*k)
		a.send(5 * k)
		time.Sleep(time.Hour)
		a.begin(10*k, 5*k)
		time.Sleep(20 * time.Second)
		r.refuses()
		time.Sleep(6 * time.Second)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 a slow connection has a second from the time when others wait", 64<<20, func(r *rig) {
		a, b := r.from("a"), r.from("b")
		a.begin(60<<20, 15<<20) // the ticks of a are at whole seconds
		time.Sleep(5*tick + tick*9/10)
		b.begin(60<<20, 2<<20) // b exceeds the shared room and gets the turn
		c := r.from("c")
		c.begin(60<<20, 70*k)
		c.send(20 * k)
		c.is("waiting")
		for range 5 { // one of a's ticks passes, 0.1 s after the pressure began
			b.send(2 << 20)
			time.Sleep(tick / 5)
			r.refuses()
		}
		time.Sleep(tick / 5)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 a connection that waited is not judged by its bytes of that time", 400*k, func(r *rig) {
		r.Whole(200 * k)
		a := r.from("a")
		a.begin(300*k, 70*k)
		a.send(10 * k)
		a.is("waiting")
		time.Sleep(25*time.Second + tick/2)
		r.Whole(-200 * k)
		a.is("read")
		time.Sleep(18 * time.Second)
		r.refuses()
		time.Sleep(3 * time.Second)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 a connection that gets the turn has a second before it is judged", 4<<20, func(r *rig) {
		a, b, c := r.from("a"), r.from("b"), r.from("c")
		b.begin(3<<20, 400*k)
		c.begin(3<<20, 400*k)
		a.begin(2<<20, 1<<20) // the shared room is used up, and a asks first
		r.Whole(300 * k)      // the shared room stays used up when the request of a is complete
		b.send(20 * k)
		c.send(20 * k)
		b.is("waiting")
		c.is("waiting")
		time.Sleep(tick * 9 / 10)
		a.send(1 << 20) // the whole request
		b.is("read")
		c.is("waiting")
		time.Sleep(tick / 5)
		r.refuses()
		b.is("read")
		time.Sleep(tick)
		r.refuses("b: " + string(TooSlow))
	})
	within(t, "SAFE-9 no connection waits for ever", 400*k, func(r *rig) {
		r.Whole(200 * k)
		a := r.from("a")
		a.begin(300*k, 70*k)
		a.send(10 * k)
		a.is("waiting")
		before := r.Progress(address("a"), 1)
		time.Sleep(29 * time.Second)
		a.is("waiting")
		if now := r.Progress(address("a"), 1); now <= before {
			r.Error("the connection counts as slow, although it is not read:", before, now)
		}
		time.Sleep(2 * time.Second)
		a.is("closed")
		r.refuses("a: " + string(TooLong))
	})
	within(t, "SAFE-9 complete requests take room until they are handled", 400*k, func(r *rig) {
		r.Whole(200 * k)
		a := r.from("a")
		a.begin(300*k, 70*k)
		a.send(10 * k)
		a.is("waiting")
		r.Whole(-200 * k)
		a.is("read")
	})
	within(t, "a connection that ends releases its bytes", 400*k, func(r *rig) {
		for what, end := range map[string]func(*peer){
			"the server ends the stream": func(p *peer) {
				t := newTalk()
				_ = t.WriteRSTStream(1, 0)
				go p.Read(make([]byte, 100))
				p.server.Write(t.Bytes()[preface:])
			},
			"the server closes the connection": func(p *peer) { p.server.Close() },
			"the client does":                  func(p *peer) { p.Close() },
		} {
			p := r.from("a")
			p.begin(300*k, 150*k)
			if r.Used() != 150*k {
				r.Errorf("%s: %d bytes before", what, r.Used())
			}
			end(p)
			synctest.Wait()
			if r.Used() != 0 || len(r.holding) != 0 || r.turn != nil || len(r.waiting) != 0 {
				r.Errorf("%s: %d bytes are used, %v, %v, %v", what, r.Used(), r.holding, r.turn, r.waiting)
			}
		}
		r.refuses()
	})
	within(t, "bytes after the end do not count", 400*k, func(r *rig) {
		a := r.from("a")
		a.server.Close()
		synctest.Wait()
		late := newTalk().open(1, false).data(1, false, beginning(300*k, 150*k))
		if err := a.server.received(late.Bytes()[preface:], nil); err == nil || r.Used() != 0 {
			r.Error(err, r.Used())
		}
	})
	within(t, "a connection that is closed while it waits stops waiting", 400*k, func(r *rig) {
		r.Whole(200 * k)
		a := r.from("a")
		a.begin(300*k, 80*k)
		a.is("waiting")
		a.server.Close()
		synctest.Wait()
		if r.Used() != 200*k || len(r.holding) != 0 || len(r.waiting) != 0 {
			r.Error(r.Used(), r.holding, r.waiting)
		}
	})
	within(t, "SAFE-9 a small request that is never complete ends its connection", 400*k, func(r *rig) {
		a := r.from("a")
		a.begin(60*k, 59*k)
		time.Sleep(20 * time.Second)
		r.refuses()
		time.Sleep(5*time.Second + tick/2)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 so does a request of which only the beginning has arrived", 400*k, func(r *rig) {
		a := r.from("a")
		a.more(1, []byte{0, 0})
		time.Sleep(25*time.Second + tick/2)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 so do requests that have stopped while another one arrives", 400*k, func(r *rig) {
		a := r.from("a")
		a.say(newTalk().open(3, false).Bytes()[preface:])
		a.more(3, beginning(30*k, 20*k))
		a.begin(10<<20, 10*k)
		for range 3 {
			time.Sleep(8 * time.Second)
			r.refuses()
			a.send(50 * k)
		}
		time.Sleep(8 * time.Second)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 a small request that arrives slowly is accepted, and so are several in a row", 400*k, func(r *rig) {
		a := r.from("a")
		for range 20 {
			a.begin(60*k, 10*k)
			for range 10 {
				time.Sleep(1900 * time.Millisecond)
				a.send(5 * k)
			}
		}
		r.refuses()
		a.server.mu.Lock()
		defer a.server.mu.Unlock()
		if a.server.in.parts != 0 || a.server.in.begun != 0 {
			r.Errorf("something is left: %+v", a.server.in)
		}
	})
	within(t, "SAFE-9 requests that arrive at once share the required rate", 4<<20, func(r *rig) {
		a := r.from("a")
		const n = 8
		for i := range uint32(n) {
			a.say(newTalk().open(3+2*i, false).Bytes()[preface:])
			a.more(3+2*i, beginning(1<<20, 70*k))
		}
		for range 6 {
			time.Sleep(10*time.Second + tick/2)
			for i := range uint32(n) {
				a.more(3+2*i, make([]byte, 9*k))
			}
		}
		r.refuses()
	})
	within(t, "SAFE-9 a client without a window for the rest of its request is not too slow", 400*k, func(r *rig) {
		a := r.from("a")
		a.begin(100*k, 64*k-10) // in a stream's first window
		time.Sleep(time.Hour)
		r.refuses()
		grant := newTalk()
		_ = grant.WriteWindowUpdate(0, 1<<20)
		_ = grant.WriteWindowUpdate(1, 100*k)
		go a.Read(make([]byte, 100))
		a.server.Write(grant.Bytes()[preface:])
		time.Sleep(20 * time.Second)
		r.refuses()
		time.Sleep(6 * time.Second)
		r.refuses("a: " + string(TooSlow))
	})
	within(t, "SAFE-9 many small incomplete requests count like a large one", 400*k, func(r *rig) {
		a := r.from("a")
		for i := range uint32(7) {
			if r.Used() != 0 && r.Used() != int(i)*50*k {
				r.Errorf("%d bytes are used by %d", r.Used(), i)
			}
			a.say(newTalk().open(3+2*i, false).Bytes()[preface:])
			a.more(3+2*i, beginning(60*k, 50*k))
		}
		if r.Used() != 350*k {
			r.Errorf("%d bytes are used", r.Used())
		}
		a.is("read")
		a.more(3, make([]byte, 10*k)) // it is whole
		if r.Used() != 300*k {
			r.Errorf("%d bytes are used", r.Used())
		}
		for i := range uint32(2) {
			a.say(newTalk().open(23+2*i, false).Bytes()[preface:])
			a.more(23+2*i, beginning(60*k, 59*k))
		}
		a.is("closed")
		r.refuses("a: " + string(TooMuch))
	})
}
