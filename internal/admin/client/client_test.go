package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a client of a server that answers with f.
func serve(t *testing.T, f http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	d, err := Dial(Target{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.http.CloseIdleConnections)
	return d
}

func TestDial(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := filepath.Join(t.TempDir(), "two")
	if err := os.WriteFile(two, []byte("a\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		target Target
		base   string // "": Dial returns an error
	}{
		{Target{}, DefaultURL},
		{Target{URL: "http://localhost:1/"}, "http://localhost:1"},
		{Target{URL: "https://[::1]:1"}, "https://[::1]:1"},
		{Target{URL: "unix:///run/x.sock"}, "http://localhost"},
		{Target{URL: "unix:x.sock"}, "http://localhost"},
		{Target{URL: "http://localhost:1", TokenFile: token}, "http://localhost:1"},
		{Target{URL: "https://example.com", TokenFile: token}, "https://example.com"},
		{Target{URL: "unix:///run/x.sock", TokenFile: token}, "http://localhost"},
		{Target{URL: "http://example.com", TokenFile: token}, ""}, // anybody on the network could read the token
		{Target{TokenFile: two}, ""},
		{Target{TokenFile: "none"}, ""},
		{Target{URL: "127.0.0.1:1"}, ""},
		{Target{URL: "localhost:1"}, ""},
		{Target{URL: "ftp://x"}, ""},
		{Target{URL: "http://x/api"}, ""},
		{Target{URL: "http://a:b@x"}, ""},
		{Target{URL: "unix://x/y"}, ""},
		{Target{URL: "unix:"}, ""},
		{Target{URL: "http://%"}, ""},
		{Target{CA: two}, ""},
		{Target{Cert: two, Key: two}, ""},
	} {
		d, err := Dial(tt.target)
		if (err == nil) != (tt.base != "") || err == nil && d.base != tt.base {
			t.Errorf("%+v: %+v, %v", tt.target, d, err)
		}
	}
}

// A pipe in place of a file is an error, and Dial does not wait for its writer.
func TestFilesAreRegular(t *testing.T) {
	pipe, other := filepath.Join(t.TempDir(), "pipe"), filepath.Join(t.TempDir(), "other")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.WriteFile(other, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]Target{
		"token": {TokenFile: pipe}, "CA": {CA: pipe}, "certificate": {Cert: pipe, Key: other}, "key": {Cert: other, Key: pipe},
	} {
		t.Run("SAFE-9 "+name, func(t *testing.T) {
			if _, err := Dial(target); err == nil || !strings.Contains(err.Error(), pipe+": a named pipe, not a regular file") {
				t.Error(err)
			}
		})
	}
}

// A name with any characters reaches the server unchanged.
func TestNamesArePathSegments(t *testing.T) {
	mux := http.NewServeMux()
	var got []string
	mux.HandleFunc("GET /api/v1/clients/{node}/resources/{type}/{name}", func(w http.ResponseWriter, r *http.Request) {
		got = []string{r.PathValue("node"), r.PathValue("type"), r.PathValue("name")}
		fmt.Fprint(w, "{}")
	})
	d := serve(t, mux.ServeHTTP)
	for _, name := range []string{"a", "a/b", "xdstp://x/y?z=1#f", "a b%2f", "..a", "ü\x00\xff"} {
		if _, err := d.ClientResources(t.Context(), name, "CDS", name, 0); err != nil || len(got) != 3 || got[0] != name || got[2] != name {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}

func TestErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		code int
		body string
		want string // text of Refused; "": the error is Unreachable
	}{
		"ours":         {404, `{"apiVersion":"v1","kind":"Error","field":"node","message":"no such","hint":"h"}`, "node: no such"},
		"a proxy's":    {502, "<html>bad gateway", ""},
		"of another":   {404, "404 page not found", ""},
		"unauthorized": {401, "go away", "401 Unauthorized: go away"},
		"no JSON":      {200, "hello", ""},
		"cut":          {200, `{"kind":"Sta`, ""},
		"a redirect":   {302, "", ""},
	} {
		d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/")
			w.WriteHeader(tt.code)
			fmt.Fprint(w, tt.body)
		})
		_, err := d.Status(t.Context(), "")
		r, refused := errors.AsType[*Refused](err)
		_, unreachable := errors.AsType[*Unreachable](err)
		if refused == unreachable || refused != (tt.want != "") || refused && (r.Error() != tt.want || r.Code != tt.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A POST request has the token, and a content type that a page of another origin cannot send.
func TestPostHasContentTypeAndToken(t *testing.T) {
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var asked api.ReloadRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || !asked.AllowMassDelete {
			t.Error(asked, err)
		}
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Error(r.Method, r.Header)
		}
		fmt.Fprint(w, `{"files":3}`)
	})
	d.token = "secret"
	if r, err := d.Reload(t.Context(), true); err != nil || r.Files != 3 {
		t.Error(r, err)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "localhost" { // the server checks the host
			t.Error(r.Host)
		}
		fmt.Fprint(w, `{"kind":"Status"}`)
	}))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	defer s.Close()
	d, err := Dial(Target{URL: "unix://" + path})
	if err != nil {
		t.Fatal(err)
	}
	defer d.http.CloseIdleConnections()
	if st, err := d.Status(t.Context(), ""); err != nil || st.Kind != "Status" {
		t.Error(st, err)
	}
}

// A call to a server that never answers returns the cause of the context's end.
func TestContextCauseIsReturned(t *testing.T) {
	stop := make(chan struct{})
	d := serve(t, func(http.ResponseWriter, *http.Request) { <-stop })
	defer close(stop)
	why := errors.New("too long")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, why)
	defer cancel()
	if _, err := d.Status(ctx, ""); !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestEvents(t *testing.T) {
	stream := ": hello\n\nid: 1\nevent: ack\ndata: {\"id\":1,\ndata: \"kind\":\"ack\"}\n\nretry: 3\n\ndata:{\"id\":2}\n\n"
	d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Last-Event-ID") != "7" || r.URL.RawQuery != "kind=ack&kind=nack&node=a%2A" {
			t.Error(r.Header, r.URL)
		}
		fmt.Fprint(w, stream)
	})
	f := EventFilter{Node: "a*", Kinds: []string{"ack", "nack"}, After: 7}
	var ids []uint64
	var last error
	for e, err := range d.Events(t.Context(), f) {
		if last = err; err == nil {
			ids = append(ids, e.ID)
		}
	}
	if fmt.Sprint(ids) != "[1 2]" || !errors.Is(last, errStreamEnded) {
		t.Error(ids, last)
	}
	for e, err := range d.Events(t.Context(), f) { // the caller stops early, without an error
		if e.ID != 1 || err != nil {
			t.Error(e, err)
		}
		break
	}
	stream = "data: nonsense\n\n"
	for _, err := range d.Events(t.Context(), f) {
		if err == nil {
			t.Error("no error for an invalid event")
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: {\"id\":1}\n\n: x\n\n")
	f.Fuzz(func(_ *testing.T, text string) {
		_ = readEvents(strings.NewReader(text), func(api.Event) bool { return true })
	})
}

// The error for an xDS port names the mistake and does not print received bytes.
func TestErrorForXDSPort(t *testing.T) {
	for _, waits := range []bool{true, false} {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			if waits {
				_, _ = c.Read(make([]byte, 1000))
			}
			_, _ = c.Write([]byte("\x00\x00\x12\x04\x1b[2J\r\n"))
			_, _ = c.Read(make([]byte, 1000)) // unread bytes would reset the connection
		}()
		d, err := Dial(Target{URL: "http://" + l.Addr().String()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Status(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "does not speak HTTP/1.1") {
			t.Errorf("waits %v: %v", waits, err)
		}
		d.http.CloseIdleConnections()
	}
}
