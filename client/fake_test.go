package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/xds"
)

// The test is the server: a fake transport gives it the streams; it reads requests and answers.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fake struct {
	t       *testing.T
	uri     string
	variant xds.Variant
	perType bool
	down    atomic.Pointer[error] // of Open

	opened chan *fakeStream
	opens  atomic.Int32
	open   atomic.Int32 // streams open now
	closed atomic.Int32
}

func newFake(t *testing.T, uri string, v xds.Variant) *fake {
	return &fake{t: t, uri: uri, variant: v, opened: make(chan *fakeStream, 1000)}
}

func (f *fake) Variant() xds.Variant { return f.variant }
func (f *fake) Aggregated() bool     { return !f.perType }
func (f *fake) String() string       { return f.uri }
func (f *fake) Close() error         { f.closed.Add(1); return nil }

// fail makes Open return err from now on. With a nil err, Open succeeds.
func (f *fake) fail(err error) {
	if err == nil {
		f.down.Store(nil)
		return
	}
	f.down.Store(&err)
}

func (f *fake) Open(ctx context.Context, only *xds.Type) (client.Stream, error) {
	f.opens.Add(1)
	if err := f.down.Load(); err != nil {
		return nil, *err
	}
	s := &fakeStream{fake: f, ctx: ctx, only: only, requests: make(chan *xds.Request, 10000), responses: make(chan *xds.Response), ends: make(chan error, 1)}
	f.open.Add(1)
	context.AfterFunc(ctx, func() { f.open.Add(-1) })
	f.opened <- s
	return s, nil
}

// stream waits until all goroutines are idle, and returns the next stream. The client must have
// opened it.
func (f *fake) stream() *fakeStream {
	f.t.Helper()
	synctest.Wait()
	select {
	case s := <-f.opened:
		return s
	default:
		f.t.Fatalf("%s: no stream was opened", f.uri)
		return nil
	}
}

// idle wants that no stream was opened.
func (f *fake) idle() {
	f.t.Helper()
	synctest.Wait()
	select {
	case <-f.opened:
		f.t.Fatalf("%s: a stream was opened", f.uri)
	default:
	}
}

type fakeStream struct {
	*fake
	ctx       context.Context
	only      *xds.Type
	requests  chan *xds.Request
	responses chan *xds.Response
	ends      chan error
	nonce     int
}

func (s *fakeStream) Send(r *xds.Request) error {
	select {
	case s.requests <- r:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *fakeStream) Recv() (*xds.Response, error) {
	select {
	case r := <-s.responses:
		return r, nil
	default:
	}
	select {
	case r := <-s.responses:
		return r, nil
	case err := <-s.ends:
		return nil, err
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// end ends the stream.
func (s *fakeStream) end(err error) {
	s.ends <- err
	synctest.Wait()
}

func spell(r *xds.Request) string {
	b := r.Type.String()
	add := func(key string, value any) { b += fmt.Sprintf(" %s=%v", key, value) }
	if r.Node != nil {
		add("node", r.Node.ID)
	}
	if r.Version != "" {
		add("version", r.Version)
	}
	if r.Nonce != "" {
		add("nonce", r.Nonce)
	}
	if len(r.Names) > 0 {
		add("names", r.Names)
	}
	if len(r.Subscribe) > 0 {
		add("sub", r.Subscribe)
	}
	if len(r.Unsubscribe) > 0 {
		add("unsub", r.Unsubscribe)
	}
	if len(r.Initial) > 0 {
		add("initial", r.Initial)
	}
	if r.Error != nil {
		add("error", strings.ReplaceAll(r.Error.Message, "\n", "; "))
	}
	return b
}

// want compares the requests since the last call with the expected requests of the variant.
func (s *fakeStream) want(sotw, delta string) {
	s.t.Helper()
	want := sotw
	if s.variant == xds.Delta {
		want = delta
	}
	synctest.Wait()
	var got []string
	for {
		select {
		case r := <-s.requests:
			got = append(got, spell(r))
			continue
		default:
		}
		break
	}
	if g := strings.Join(got, "\n"); g != want {
		s.t.Fatalf("%s: requests\n%s\nwant\n%s", s.uri, g, want)
	}
}

// skip drops the requests so far.
func (s *fakeStream) skip() {
	synctest.Wait()
	for len(s.requests) > 0 {
		<-s.requests
	}
}

// respond answers with a version and resources: "a=1" is one, "-a" is removed (delta), "!x" cannot
// be read, "?a" does not exist by resource_errors, "~a=text" is another error.
func (s *fakeStream) respond(t *xds.Type, version string, content ...string) {
	s.t.Helper()
	s.nonce++
	s.send(response(t, version, fmt.Sprint("n", s.nonce), content...))
}

func (s *fakeStream) send(r *xds.Response) {
	s.t.Helper()
	synctest.Wait()
	select {
	case s.responses <- r:
	case <-time.After(time.Minute):
		s.t.Fatalf("%s: the client does not receive", s.uri)
	}
	synctest.Wait()
}

func response(t *xds.Type, version, nonce string, content ...string) *xds.Response {
	r := &xds.Response{Type: t, Version: version, Nonce: nonce, Changes: &xds.Changes{}}
	for _, c := range content {
		name, body, _ := strings.Cut(c, "=")
		switch c[0] {
		case '-':
			r.Removed = append(r.Removed, name[1:])
		case '!':
			r.Malformed = append(r.Malformed, errors.New(name[1:]))
		case '?':
			r.Missing = append(r.Missing, name[1:])
		case '~':
			r.Errors = append(r.Errors, xds.ResourceError{Name: name[1:], Status: xds.Status{Code: 13, Message: body}})
		default:
			r.Upserts = append(r.Upserts, resource(t, name, body))
		}
	}
	return r
}

// resource returns a resource whose message has its name and a text.
func resource(t *xds.Type, name, text string) *xds.Resource {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	r := xds.NewResource(t, name, protowire.AppendString(protowire.AppendTag(b, 1000, protowire.BytesType), text))
	r.Seal(text)
	return r
}

// textOf returns the text in the message of a resource, or the whole body if that is not such a message.
func textOf(r *xds.Resource) string {
	for b := r.Body; ; {
		num, typ, n := protowire.ConsumeTag(b)
		end := n + protowire.ConsumeFieldValue(num, typ, b[max(0, n):])
		switch {
		case n < 0 || end <= n:
			return string(r.Body)
		case num == 1000:
			text, _ := protowire.ConsumeString(b[n:])
			return text
		}
		b = b[end:]
	}
}

// A taker takes the events of a watch as they come.
type taker struct {
	t      *testing.T
	cancel context.CancelFunc
	events chan string
}

// watch begins a watch.
func watch(t *testing.T, c *client.Client, typ *xds.Type, names ...string) *taker {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &taker{t: t, cancel: cancel, events: make(chan string, 10000)}
	go func() {
		for ev, err := range c.Watch(ctx, typ, names...) {
			w.events <- tellEvent(ev, err)
		}
	}()
	synctest.Wait()
	return w
}

func tellEvent(ev client.Event, err error) string {
	if err != nil {
		return "end: " + err.Error()
	}
	s := fmt.Sprintf("%s %s", ev.Name, ev.Kind)
	if ev.Resource != nil {
		s += "=" + textOf(ev.Resource)
	}
	if ev.Err != nil {
		s += ": " + ev.Err.Error()
	}
	return s
}

func (w *taker) take() (got []string) {
	synctest.Wait()
	for {
		select {
		case s := <-w.events:
			got = append(got, s)
			continue
		default:
		}
		return got
	}
}

// want compares the events since the last call. "…" at the end of an expected event stands for any
// text.
func (w *taker) want(want ...string) {
	w.t.Helper()
	w.compare(w.take(), want)
}

func (w *taker) compare(got, want []string) {
	w.t.Helper()
	if !slices.EqualFunc(got, want, func(g, want string) bool {
		if head, ok := strings.CutSuffix(want, "…"); ok {
			return strings.HasPrefix(g, head)
		}
		return g == want
	}) {
		w.t.Fatalf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantAll does the same as want, in any order.
func (w *taker) wantAll(want ...string) {
	w.t.Helper()
	got := w.take()
	slices.Sort(got)
	slices.Sort(want)
	w.compare(got, want)
}

var errDown = errors.New("connection refused")

// noBad refuses resources whose body begins with "bad".
func noBad(r *xds.Resource) error {
	if strings.HasPrefix(textOf(r), "bad") {
		return errors.New(textOf(r))
	}
	return nil
}

// both runs a test for both variants, in a bubble.
func both(t *testing.T, name string, f func(t *testing.T, v xds.Variant)) {
	for _, v := range []xds.Variant{xds.SotW, xds.Delta} {
		t.Run(name+"/"+v.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, v) })
		})
	}
}

// begin returns a client of a server.
func begin(t *testing.T, cfg client.Config, fakes ...*fake) *client.Client {
	t.Helper()
	if cfg.Node == nil {
		cfg.Node = &xds.Node{ID: "n"}
	}
	if cfg.Check == nil {
		cfg.Check = noBad
	}
	for _, f := range fakes {
		cfg.Servers = append(cfg.Servers, client.Server{Transport: f})
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
	return c
}

// one is a client of one server.
func one(t *testing.T, v xds.Variant) (*client.Client, *fake) {
	f := newFake(t, "xds://a", v)
	return begin(t, client.Config{}, f), f
}
