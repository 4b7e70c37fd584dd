package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// A poll is a request over REST-JSON with its answer.
type poll struct {
	conn     int    // number of the connection
	typ      string // "clusters"
	names    string
	version  string // that the client states
	nonce    string
	failure  string // error_detail
	timeout  string // the timeout that the client states, in ms
	asked    time.Duration
	answered time.Duration // zero: not yet
	status   int           // zero: the connection ended
	told     string        // the version of the answer
	count    int           // of its resources
}

func (p poll) String() string {
	s := fmt.Sprintf("%7.3f #%d %s %s version_info=%q", p.asked.Seconds(), p.conn, p.typ, p.names, p.version)
	if p.nonce+p.failure != "" {
		s += fmt.Sprintf(" response_nonce=%q error_detail=%s", p.nonce, p.failure)
	}
	if p.answered > 0 {
		s += fmt.Sprintf(" → %7.3f %d", p.answered.Seconds(), p.status)
	}
	if p.status == http.StatusOK {
		s += fmt.Sprintf(" version_info=%q, %d resources", p.told, p.count)
	}
	return s
}

type polls []poll

// of returns the polls for a type, or for one of its names, and only those that
// were answered with the status, if one is given.
func (ps polls) of(typ, name string, status ...int) (out polls) {
	for _, p := range ps {
		if (typ == "" || p.typ == typ) && (name == "" || p.names == "["+name+"]") && (len(status) == 0 || p.status == status[0]) {
			out = append(out, p)
		}
	}
	return out
}

func (ps polls) String() string {
	var b strings.Builder
	for _, p := range ps {
		fmt.Fprintln(&b, p)
	}
	return b.String()
}

// A recorder is a proxy between a client and the server that records polls. It has one connection
// to the server for each connection of the client, and changes no byte.
type recorder struct {
	to    string
	lis   net.Listener
	start time.Time
	done  sync.WaitGroup

	mu    sync.Mutex
	open  []net.Conn
	conns int
	all   []*poll
}

func record(t *testing.T, to string) *recorder {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{to: to, lis: lis, start: time.Now()}
	r.done.Go(r.accept)
	t.Cleanup(func() {
		lis.Close()
		r.cut()
		r.done.Wait()
		if t.Failed() {
			t.Logf("polls:\n%s", r.since(0))
		}
	})
	return r
}

func (r *recorder) port() int { return r.lis.Addr().(*net.TCPAddr).Port }

func (r *recorder) accept() {
	for {
		c, err := r.lis.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", r.to)
		if err != nil {
			c.Close()
			continue
		}
		r.mu.Lock()
		r.conns++
		n := r.conns
		r.open = append(r.open, c, s)
		r.mu.Unlock()
		asked := make(chan *poll, 100)
		r.done.Go(func() { r.requests(n, c, s, asked); s.Close() })
		r.done.Go(func() { r.responses(c, s, asked); c.Close(); r.abandon(asked) })
	}
}

// cut closes all connections.
func (r *recorder) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.open {
		c.Close()
	}
	r.open = nil
}

func (r *recorder) requests(n int, c, s net.Conn, asked chan<- *poll) {
	defer close(asked)
	in := bufio.NewReader(io.TeeReader(c, s))
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		began := r.now() // before the server has the whole request
		var body struct {
			VersionInfo   string          `json:"version_info"`
			ResponseNonce string          `json:"response_nonce"`
			ResourceNames []string        `json:"resource_names"`
			ErrorDetail   json.RawMessage `json:"error_detail"`
		}
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		p := &poll{
			conn: n, typ: strings.TrimPrefix(req.URL.Path, "/v3/discovery:"), names: fmt.Sprint(body.ResourceNames), version: body.VersionInfo,
			nonce: body.ResponseNonce, failure: string(body.ErrorDetail), timeout: req.Header.Get("x-envoy-expected-rq-timeout-ms"), asked: began,
		}
		r.mu.Lock()
		r.all = append(r.all, p)
		r.mu.Unlock()
		asked <- p
	}
}

// abandon notes that polls are not answered any more.
func (r *recorder) abandon(asked <-chan *poll) {
	for p := range asked {
		r.mu.Lock()
		p.answered = time.Since(r.start)
		r.mu.Unlock()
	}
}

func (r *recorder) responses(c, s net.Conn, asked <-chan *poll) {
	in := bufio.NewReader(io.TeeReader(s, c))
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return
		}
		var body struct {
			VersionInfo string
			Resources   []json.RawMessage
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode == http.StatusOK && json.Unmarshal(b, &body) != nil {
			return
		}
		p := <-asked
		if p == nil {
			return
		}
		r.mu.Lock()
		p.answered, p.status, p.told, p.count = time.Since(r.start), resp.StatusCode, body.VersionInfo, len(body.Resources)
		r.mu.Unlock()
	}
}

// now is a point in the record.
func (r *recorder) now() time.Duration { return time.Since(r.start) }

// since returns the polls that were answered after a point, or are not yet.
func (r *recorder) since(p time.Duration) (all polls) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.all {
		if q.answered == 0 || q.answered > p {
			all = append(all, *q)
		}
	}
	return all
}
