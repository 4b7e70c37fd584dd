package peers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A board is a store with announcements.
type board struct {
	mu   sync.Mutex
	all  map[string][]byte
	away bool
	lost chan struct{} // closed: all leases are lost
}

func newBoard() *board { return &board{all: map[string][]byte{}, lost: make(chan struct{})} }

func (b *board) Announce(ctx context.Context, key string, values <-chan []byte) error {
	b.mu.Lock()
	away, lost := b.away, b.lost
	b.mu.Unlock()
	if away {
		return revisions.ErrUnavailable
	}
	defer b.put(key, nil)
	for {
		select {
		case v := <-values:
			b.put(key, v)
		case <-lost:
			return revisions.ErrUnavailable
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *board) put(key string, v []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all[key] = v; v == nil {
		delete(b.all, key)
	}
}

func (b *board) Announced(_ context.Context, _ string, most int) (map[string][]byte, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return nil, false, revisions.ErrUnavailable
	}
	return maps.Clone(b.all), len(b.all) > most, nil
}

// lose drops all leases; with away, the store does not answer.
func (b *board) lose(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away = away; away {
		close(b.lost)
		b.lost = make(chan struct{})
	}
}

func server(b *board, id string, log io.Writer, streams func() int) *Replicas {
	return New(Options{Engine: b, Log: slog.New(slog.NewTextHandler(log, nil)), Self: func() About {
		return About{ID: id, Host: "here", Admin: "http://127.0.0.1:1", Streams: streams()}
	}})
}

func ids(r *Replicas) string {
	all, _ := r.others()
	var text []string
	for _, m := range all {
		text = append(text, fmt.Sprintf("%s %d", m.ID, m.Streams))
	}
	return strings.Join(text, ", ")
}

// Servers find each other, learn changes, and forget servers that have ended. While the store does
// not answer, they keep the known servers. When it answers again, they announce themselves again.
func TestAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard()
		ctx, stop := context.WithCancel(t.Context())
		short, end := context.WithCancel(ctx)
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		var log bytes.Buffer
		var streams atomic.Int64
		streams.Store(7)
		x := server(b, "x", &log, func() int { return 1 })
		y := server(b, "y", io.Discard, func() int { return int(streams.Load()) })
		running.Go(func() { x.Run(ctx) })
		running.Go(func() { y.Run(short) })
		is := func(want string) {
			t.Helper()
			time.Sleep(announceEvery + lookEvery)
			synctest.Wait()
			if got := ids(x); got != want {
				t.Errorf("servers %q, want %q", got, want)
			}
		}
		is("y 7")
		streams.Store(9)
		is("y 9")
		b.lose(true)
		is("y 9")
		b.lose(false)
		is("y 9")
		if n := strings.Count(log.String(), "cannot announce this server in the store"); n != 1 {
			t.Errorf("logged %d times: %s", n, log.String())
		}
		b.put("replica/z", []byte("{"))
		b.put("replica/"+strings.Repeat("n", 9999), bytes.Repeat([]byte("n"), maxAbout+1))
		time.Sleep(lookEvery)
		for _, m := range func() []member { all, _ := x.others(); return all }() {
			if (m.err == nil) != (m.ID == "y") || len(m.ID) > 400 {
				t.Error(m.ID, m.err)
			}
		}
		b.mu.Lock()
		maps.DeleteFunc(b.all, func(key string, _ []byte) bool {
			return key > "replica/z" || strings.HasPrefix(key, "replica/n") || key == "replica/z"
		})
		b.mu.Unlock()
		end()
		is("")
	})
}

// A replaced store has no announcements: the known servers are still asked, and the result is marked as
// incomplete.
func TestReplacedStoreKeepsKnownServers(t *testing.T) {
	b := newBoard()
	r := server(b, "me", io.Discard, func() int { return 1 })
	is := func(want string, sure bool) {
		t.Helper()
		r.look(t.Context())
		if _, unsure := r.others(); ids(r) != want || (unsure == nil) != sure {
			t.Errorf("servers %q, want %q; unsure: %v", ids(r), want, unsure)
		}
	}
	is("", true) // as a server starts
	for _, id := range []string{"me", "a"} {
		b.put(prefix+id, []byte(`{"format":1,"id":"`+id+`","streams":7}`))
	}
	is("a 7", true)
	was := b.all
	b.all = map[string][]byte{}
	is("a 7", false)
	is("a 7", false)
	b.all = was
	is("a 7", true)
	b.put(prefix+"a", nil)
	is("", true)
}

func TestReachable(t *testing.T) {
	for admin, want := range map[string]string{
		"":                          "no admin API",
		"http://127.0.0.1:1":        "",
		"https://localhost:1":       "",
		"https://10.0.0.1:1":        "",
		"https://[2001:db8::1]:1":   "",
		"http://10.0.0.1:1":         "no TLS",
		"http://example.com:1":      "no TLS",
		"https://0.0.0.0:1":         "not the address of a machine",
		"https://[::]:1":            "not the address of a machine",
		"https://10.0.0.1":          "not the address",
		"https://10.0.0.1:1/x":      "not the address",
		"https://u:p@10.0.0.1:1":    "not the address",
		"https://10.0.0.1:1?x":      "not the address",
		"unix:///run/x":             "not the address",
		"file:///etc/passwd":        "not the address",
		"https://10.0.0.1:1\n":      "not the address",
		"gopher://10.0.0.1:1":       "not the address",
		"https://10.0.0.1:1#x":      "not the address",
		"https://10.0.0.1:notaport": "not the address",
	} {
		err := About{Admin: admin, Host: "here"}.reachable("here")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", admin, err)
		}
	}
	if err := (About{Admin: "http://127.0.0.1:1", Host: "there"}).reachable("here"); err == nil {
		t.Error("the loopback address of another machine is reachable")
	}
}

// A pipes has servers by address, in memory.
type pipes struct {
	mu     sync.Mutex
	all    map[string]func(net.Conn)
	dialed []string
}

func (p *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialed = append(p.dialed, addr)
	f := p.all[addr]
	if f == nil {
		return nil, errors.New("connection refused")
	}
	mine, its := net.Pipe()
	go func() { defer its.Close(); f(its) }()
	return mine, nil
}

// says answers one request with a text.
func says(text string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, text)
	}
}

func ok(id, body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nChancery-Replica: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", id, len(body), body)
}

// Whatever another server does, the others answer, within a second; redirects are not followed.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{all: map[string]func(net.Conn){}}
		b := newBoard()
		r := server(b, "me", io.Discard, func() int { return 0 })
		r.client.http.Transport.(*http.Transport).DialContext = p.dial
		r.client.token = func() (string, error) { t.Error("the client reads the token without TLS"); return "", nil }
		port := 0
		want := map[string]string{}
		add := func(id, error string, f func(net.Conn)) {
			port++
			at := fmt.Sprintf("127.0.0.1:%d", port)
			p.all[at], want[id] = f, error
			v, err := json.Marshal(About{Format: format, ID: id, Admin: "http://" + at, Host: "here"})
			if err != nil {
				t.Fatal(err)
			}
			b.put(prefix+id, v)
		}
		add("me", "", func(net.Conn) { t.Error("the server sent a request to itself") })
		add("good", "", says(ok("good", "fine")))
		add("nothing", "", says("HTTP/1.1 404 Not Found\r\nChancery-Replica: nothing\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		add("large", "more than 1000 bytes", says(ok("large", strings.Repeat("x", 1001))))
		add("endless", "more than 1000 bytes", func(c net.Conn) {
			says("HTTP/1.1 200 OK\r\nChancery-Replica: endless\r\n\r\n")(c)
			for err := error(nil); err == nil; {
				_, err = c.Write(make([]byte, 1<<16))
			}
		})
		add("slow", "no answer within 1s", func(c net.Conn) {
			says("HTTP/1.1 200 OK\r\nChancery-Replica: slow\r\n\r\n")(c)
			for err := error(nil); err == nil; time.Sleep(100 * time.Millisecond) {
				_, err = c.Write([]byte("x"))
			}
		})
		add("silent", "no answer within 1s", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		add("garbage", "malformed", says(rand.Text()+"\r\n\r\n"))
		add("headers", "header", says("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<20)+"\r\n\r\n"))
		add("other", "another server answers", says(ok("good", "fine")))
		add("points", "it answers Found", says("HTTP/1.1 302 Found\r\nChancery-Replica: points\r\nLocation: http://127.0.0.1:999/\r\nContent-Length: 0\r\n\r\n"))
		add("denies", "it requires a token, which is sent over https only", says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"))
		add("busy", "it answers Too Many Requests: another command is under way (it takes 30s at most)", says(strings.Replace(ok("busy", `{"kind":"Error","message":"another command is under way","hint":"it takes 30s at most"}`), "200 OK", "429 Too Many Requests", 1)))
		add("fails", "it answers Internal Server Error", says(strings.Replace(ok("fails", `{"kind":"Status"}`), "200 OK", "500 Internal Server Error", 1)))
		add("forbids", "it answers Forbidden", says("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"))
		add("down", "connection refused", nil)

		began := time.Now()
		heard := map[string]string{}
		all, unsure := r.Ask(t.Context(), "/x", url.Values{"a": {"b"}}, 1000, func(of *api.Replica, body []byte) { heard[of.ID] = string(body) })
		if took := time.Since(began); took > AskTime || unsure != nil || len(all) != len(want)-1 {
			t.Error(took, unsure, len(all))
		}
		for _, x := range all {
			if (x.Error == "") != (want[x.ID] == "") || !strings.Contains(x.Error, want[x.ID]) {
				t.Errorf("%s: %q", x.ID, x.Error)
			}
		}
		if len(heard) != 2 || heard["good"] != "fine" {
			t.Error(heard)
		}
		for _, at := range p.dialed {
			if strings.HasSuffix(at, ":999") {
				t.Error("the client followed a redirect")
			}
		}

		// One server no longer answers, and the store is away.
		p.all["127.0.0.1:2"] = nil
		b.lose(true)
		time.Sleep(time.Minute)
		all, unsure = r.Ask(t.Context(), "/x", nil, 1000, func(*api.Replica, []byte) {})
		for _, x := range all {
			if x.ID == "good" && (x.Error == "" || x.Seen == nil || time.Since(*x.Seen) < time.Minute) {
				t.Errorf("%+v", x)
			}
		}
		if unsure == nil || !strings.Contains(unsure.Error(), "1m1s ago") {
			t.Error(unsure)
		}
		r.client.close()
		time.Sleep(time.Second) // servers notice the closed connections
	})
}

// An order is a POST request with a JSON body. A server that does not know the caller refuses it.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got string
		p := &pipes{all: map[string]func(net.Conn){
			"127.0.0.1:1": func(c net.Conn) {
				b := make([]byte, 4096)
				n, _ := c.Read(b)
				got = string(b[:n])
				_, _ = io.WriteString(c, ok("good", "done"))
			},
			"127.0.0.1:2": says("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
		}}
		b := newBoard()
		r := server(b, "me", io.Discard, func() int { return 0 })
		r.client.http.Transport.(*http.Transport).DialContext = p.dial
		b.put(prefix+"good", []byte(must(json.Marshal(About{Format: format, ID: "good", Admin: "http://127.0.0.1:1", Host: "here"}))))
		b.put(prefix+"open", []byte(must(json.Marshal(About{Format: format, ID: "open", Admin: "http://127.0.0.1:2", Host: "here"}))))
		heard := ""
		all, unsure := r.Order(t.Context(), "/x", []byte(`{"a":1}`), 1000, func(of *api.Replica, body []byte) { heard += of.ID + " " + string(body) })
		if unsure != nil || len(all) != 2 || heard != "good done" || !strings.Contains(all[1].Error, "it takes commands only from authenticated callers") {
			t.Error(all, unsure, heard)
		}
		if !strings.HasPrefix(got, "POST /x HTTP/1.1") || !strings.Contains(got, "Content-Type: application/json") || !strings.HasSuffix(got, `{"a":1}`) {
			t.Errorf("sent %q", got)
		}
		r.client.close()
	})
}

func must(b []byte, err error) string {
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A server that rejects the token gives no other information: the rejection is its error.
func TestRejectedToken(t *testing.T) {
	p := &pipes{all: map[string]func(net.Conn){"10.0.0.1:1": says("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")}}
	tr := &http.Transport{DialTLSContext: p.dial}
	defer tr.CloseIdleConnections()
	c := client{&http.Client{Transport: tr}, func() (string, error) { return "another", nil }, true}
	if _, err := c.send(t.Context(), "x", "https://10.0.0.1:1", request{http.MethodGet, "/x", nil, nil}, 9); err == nil || err.Error() != "it rejects the token of this server" {
		t.Error(err)
	}
	c.token = nil
	if _, err := c.send(t.Context(), "x", "https://10.0.0.1:1", request{http.MethodGet, "/x", nil, nil}, 9); err == nil || err.Error() != "it requires a token, and this server has none" {
		t.Error(err)
	}
}

// If many servers do not answer, only a few are asked at once. Those that were not asked have an
// error, too, so a part of the answers never looks complete.
func TestManyHangingServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{all: map[string]func(net.Conn){}}
		b := newBoard()
		r := server(b, "me", io.Discard, func() int { return 0 })
		r.client.http.Transport.(*http.Transport).DialContext = p.dial
		for i := range maxReplicas + 1 {
			at := fmt.Sprintf("127.0.0.1:%d", i+1)
			p.all[at] = func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
			b.put(fmt.Sprintf("%sx%d", prefix, i), fmt.Appendf(nil, `{"format":1,"id":"x%d","admin":"http://%s","host":"here"}`, i, at))
		}
		began := time.Now()
		all, unsure := r.Ask(t.Context(), "/x", nil, 1000, func(*api.Replica, []byte) { t.Error("one answers") })
		if took := time.Since(began); took > AskTime || len(p.dialed) != atOnce {
			t.Errorf("%d servers were asked in %v", len(p.dialed), took)
		}
		for _, x := range all {
			if x.Error != "no answer within 1s" {
				t.Errorf("%s: %q", x.ID, x.Error)
			}
		}
		if unsure == nil || unsure.Error() != "more than 128 servers" {
			t.Error(unsure)
		}
		r.client.close()
	})
}
