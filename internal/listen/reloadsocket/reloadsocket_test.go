package reloadsocket

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A handler passes on each request, and returns when the test lets it.
type handler struct {
	asked  chan bool // the parameter approve
	answer chan Reload
}

func newHandler() handler { return handler{make(chan bool, 1), make(chan Reload, 1)} }

func (h handler) Reload(ctx context.Context, approve bool) Reload {
	h.asked <- approve
	select {
	case r := <-h.answer:
		return r
	case <-ctx.Done():
		return Reload{Errors: []string{"it ends"}}
	}
}

// serve serves in a folder. The returned function ends that, and waits for the end.
func serve(t *testing.T, folder string, h Handler) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, folder, h, slog.New(slog.DiscardHandler)) }()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if info, err := os.Lstat(filepath.Join(folder, name)); err == nil && info.Mode() == fs.ModeSocket|0o600 {
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("SAFE-6 no socket of mode 0600 appeared")
		}
	}
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			return errors.New("it does not end")
		}
	}
}

// A request is executed, and its result is returned.
func TestAskReloads(t *testing.T) {
	folder, h := t.TempDir(), newHandler()
	end := serve(t, folder, h)
	for _, approve := range []bool{false, true} {
		want := Reload{Files: 1, Resources: 2, Set: 3, Removed: 4, Held: 5, Errors: []string{"a", "b"}}
		h.answer <- want
		got, err := Ask(t.Context(), folder, approve)
		want.PID = os.Getpid()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
		if asked := <-h.asked; asked != approve {
			t.Errorf("approved %v, want %v", asked, approve)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := Ask(t.Context(), folder, false); !errors.Is(err, ErrNobody) {
		t.Error("after its end:", err)
	}
}

// A killed server leaves its socket: no server listens there, and the next one replaces it.
func TestStaleSocketIsReplaced(t *testing.T) {
	folder := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(folder, name), 0o640); err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if _, err := Ask(t.Context(), folder, false); !errors.Is(err, ErrNobody) {
		t.Error("the socket of a killed server:", err)
	}
	h := newHandler()
	end := serve(t, folder, h)
	h.answer <- Reload{Files: 1}
	if got, err := Ask(t.Context(), folder, false); err != nil || got.Files != 1 {
		t.Error(got, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// A server that ends does not wait for a reload, and the caller does not wait for ever.
func TestEndOfServerEndsRequests(t *testing.T) {
	folder, h := t.TempDir(), newHandler()
	end := serve(t, folder, h)
	told := make(chan error, 1)
	go func() {
		r, err := Ask(context.Background(), folder, false)
		if err == nil && len(r.Errors) == 0 {
			err = errors.New("the caller got a result without an error")
			told <- err
		}
		told <- nil
	}()
	<-h.asked
	if err := end(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-told:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("who asked waits")
	}
}

// An invalid request approves nothing, and an error is not taken for a result.
func TestBadRequests(t *testing.T) {
	folder, h := t.TempDir(), newHandler()
	end := serve(t, folder, h)
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(folder, name))
	}}}
	for url, want := range map[string]int{
		"/reload": http.StatusBadRequest, "/reload?approve=all": http.StatusBadRequest, "/": http.StatusNotFound,
	} {
		resp, err := c.Post("http://chancery"+url, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", url, resp.Status, want)
		}
	}
	select {
	case <-h.asked:
		t.Error("the handler was called")
	default:
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	l, err := net.Listen("unix", filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", http.StatusInternalServerError) })}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	if r, err := Ask(t.Context(), folder, true); err == nil {
		t.Errorf("an error is taken for %+v", r)
	}
	s.Close()
	<-done
}
