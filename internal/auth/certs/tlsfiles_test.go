package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/testkit/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A clockedSource is a source with its own clock and a record of its log.
type clockedSource struct {
	t      *testing.T
	source *Source
	config *tls.Config

	mu  sync.Mutex
	now time.Time
	log bytes.Buffer
}

func newClockedSource(t *testing.T, f Files) *clockedSource {
	t.Helper()
	w := &clockedSource{t: t, now: time.Now().Add(time.Hour)}
	s, err := Open(f, slog.New(slog.NewTextHandler(w, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.now = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	}
	s.read = w.now
	w.source, w.config = s, s.Config()
	return w
}

func (w *clockedSource) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *clockedSource) sleep(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// lines returns the lines that were logged since its last call.
func (w *clockedSource) lines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.log.Reset()
	return strings.Split(strings.TrimSuffix(w.log.String(), "\n"), "\n")
}

// logged expects one line with the text; none if it is empty.
func (w *clockedSource) logged(text string) {
	w.t.Helper()
	if got := w.lines(); len(got) != 1 || !strings.Contains(got[0], text) || text == "" && got[0] != "" {
		w.t.Errorf("logged %q, want one line with %q", got, text)
	}
}

// shake runs a handshake. It returns the state of the connection for the client, and the errors of
// both ends.
func shake(server, client *tls.Config) (state tls.ConnectionState, clientErr, serverErr error) {
	a, b := net.Pipe()
	for _, end := range []net.Conn{a, b} {
		end.SetDeadline(time.Now().Add(10 * time.Second)) // in case both ends write at once
	}
	s, c := tls.Server(a, server), tls.Client(b, client)
	done := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		a.Close()
		done <- err
	}()
	clientErr = c.Handshake()
	if clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1)) // TLS 1.3 reports a refused certificate here
	}
	state = c.ConnectionState()
	b.Close()
	return state, clientErr, <-done
}

// serves expects that a client gets the certificate with a common name.
func (w *clockedSource) serves(client *tls.Config, name string) {
	w.t.Helper()
	state, err, serverErr := shake(w.config, client)
	if err != nil {
		w.t.Errorf("handshake: %v; server: %v", err, serverErr)
		return
	}
	if got := state.PeerCertificates[0].Subject.CommonName; got != name {
		w.t.Errorf("served %q, want %q", got, name)
	}
}

// An invalid file is in the log and in the faults without a handshake, until it is valid again.
func TestInvalidFilesAreReportedWithoutHandshake(t *testing.T) {
	ca := newAuthority(t, "ca")
	good := ca.issue("one")
	for name, invalid := range map[string]func(Files) string{
		"client CA":   func(f Files) string { return f.ClientCA },
		"certificate": func(f Files) string { return f.Cert },
		"key":         func(f Files) string { return f.Key },
	} {
		t.Run("SAFE-17 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				f := filesIn(t, dir, good, ca.PEM)
				path := invalid(f)
				log, read := &logtest.Log{}, 0
				s, err := Open(f, slog.New(slog.NewTextHandler(log, nil)))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go s.Run(ctx)
				rests := func(faults int, lines string) {
					t.Helper()
					time.Sleep(5 * lookEvery)
					synctest.Wait()
					if all := s.Faults(); len(all) != faults || faults == 1 && !strings.Contains(all[0].Text, path) {
						t.Errorf("faults %v, want %d", all, faults)
					}
					got := log.String()[read:]
					read += len(got)
					if strings.Count(got, "\n") != strings.Count(lines, "\n") || !strings.Contains(got, strings.TrimSpace(lines)) {
						t.Errorf("logged %q, want %q", got, lines)
					}
				}
				rests(0, "")
				write(t, path, []byte("x"))
				rests(1, "new TLS files are invalid: keeping the previous ones\n")
				filesIn(t, dir, good, ca.PEM)
				rests(0, "TLS files changed\n")
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				rests(1, "new TLS files are invalid: keeping the previous ones\n")
				cancel()
				synctest.Wait()
			})
		})
	}
	if all := (*Source)(nil).Faults(); all != nil {
		t.Error(all)
	}
}

func TestServesCertificate(t *testing.T) {
	ca := newAuthority(t, "ca")
	w := newClockedSource(t, filesIn(t, t.TempDir(), ca.issue("one"), nil))
	state, err, _ := shake(w.config, ca.client())
	if err != nil {
		t.Fatal(err)
	}
	if state.NegotiatedProtocol != "h2" || state.Version != tls.VersionTLS13 {
		t.Errorf("%q, version %x", state.NegotiatedProtocol, state.Version)
	}
	client := ca.client()
	client.MaxVersion = tls.VersionTLS12
	w.serves(client, "one")
	client.MinVersion, client.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err := shake(w.config, client); err == nil || !strings.Contains(err.Error(), "unsupported versions") {
		t.Errorf("TLS 1.1: %v", err)
	}
	client = ca.client()
	client.NextProtos = []string{"spdy/1"}
	if _, _, err := shake(w.config, client); err == nil || !strings.Contains(err.Error(), "unsupported application protocols") {
		t.Errorf("another protocol: %v", err)
	}
}

func TestClientCertificates(t *testing.T) {
	servers, clients, others := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "others")
	f := filesIn(t, t.TempDir(), servers.issue("one"), clients.PEM)
	w := newClockedSource(t, f)
	refused := func(why string, client *tls.Config, want string) {
		t.Helper()
		_, err, serverErr := shake(w.config, client)
		if err == nil || serverErr == nil || !strings.Contains(serverErr.Error(), want) {
			t.Errorf("%s: %v; server: %v, want an error with %q", why, err, serverErr, want)
		}
	}
	w.serves(servers.client(clients.issue("envoy")), "one")
	refused("no certificate", servers.client(), "didn't provide a certificate")
	refused("of another authority", servers.client(others.issue("mallory")), "unknown authority")

	// A new CA replaces the old one, and no session outlives the old one.
	kept := servers.client(clients.issue("envoy"))
	kept.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	w.serves(kept, "one")
	write(t, f.ClientCA, others.PEM)
	w.sleep(every)
	w.serves(servers.client(others.issue("envoy")), "one")
	refused("verified before", kept, "unknown authority")

	// The file has both CAs while clients change to the new one.
	write(t, f.ClientCA, append(bytes.Clone(others.PEM), clients.PEM...))
	w.sleep(every)
	w.serves(servers.client(others.issue("envoy")), "one")
	w.serves(kept, "one")
}

func TestRotation(t *testing.T) {
	ca := newAuthority(t, "ca")
	one, two := ca.issue("one"), ca.issue("two")
	f := filesIn(t, t.TempDir(), one, nil)
	w := newClockedSource(t, f)
	client := ca.client()
	w.serves(client, "one")

	// The new certificate is written before its key.
	write(t, f.Cert, two.Cert)
	w.sleep(every)
	w.serves(client, "one")
	w.logged("private key does not match public key")
	write(t, f.Key, two.Key)
	w.serves(client, "one") // the last check was less than a second ago
	w.sleep(every)
	w.serves(client, "two")
	w.logged(`msg="TLS files changed" subject="CN=two" not_after=`)
	w.sleep(every)
	w.serves(client, "two")
	w.logged("")
}

// A file is rewritten in place, at the same time and with the same size as before.
func TestRewriteWithSameTimeAndSize(t *testing.T) {
	ca := newAuthority(t, "ca")
	one := ca.issue("one")
	two := ca.issue("two")
	for len(two.Cert) != len(one.Cert) || len(two.Key) != len(one.Key) {
		two = ca.issue("two")
	}
	f := filesIn(t, t.TempDir(), one, nil)
	at := time.Now().Add(time.Hour)
	touch := func() {
		for _, path := range f.paths() {
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	touch()
	w := newClockedSource(t, f)
	w.source.read = at.Add(time.Millisecond)
	for path, b := range map[string][]byte{f.Cert: two.Cert, f.Key: two.Key} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch()
	w.sleep(time.Minute)
	w.serves(ca.client(), "two")
	if stamps := stampsOf(f.paths()); !same(stamps, w.source.stamps, w.source.read) {
		t.Error("unchanged files count as changed")
	}
}

// Kubernetes swaps a symbolic link to the directory of all files.
func TestSymbolicLinkSwap(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	put := func(name string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		filesIn(t, filepath.Join(dir, name), ca.issue(name), ca.PEM)
		if err := os.Symlink(name, filepath.Join(dir, "data.new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "data.new"), filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
	}
	put("one")
	var f Files
	for name, path := range map[string]*string{"tls.crt": &f.Cert, "tls.key": &f.Key, "ca.crt": &f.ClientCA} {
		*path = filepath.Join(dir, name)
		if err := os.Symlink(filepath.Join("data", name), *path); err != nil {
			t.Fatal(err)
		}
	}
	w := newClockedSource(t, f)
	client := ca.client(ca.issue("envoy"))
	w.serves(client, "one")
	put("two")
	w.sleep(every)
	w.serves(client, "two")
	w.logged("CN=two")
}

func TestRotationUnderUse(t *testing.T) {
	ca := newAuthority(t, "ca")
	f := filesIn(t, t.TempDir(), ca.issue("0"), nil)
	w := newClockedSource(t, f)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			client := ca.client()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err, serverErr := shake(w.config, client); err != nil {
					t.Errorf("%v; server: %v", err, serverErr)
					return
				}
			}
		})
	}
	for name := range strings.FieldsSeq("1 2 3 4 5 6 7 8 9") {
		p := ca.issue(name)
		write(t, f.Cert, p.Cert)
		w.sleep(every)
		shake(w.config, ca.client()) // this handshake may read the new certificate with the old key
		write(t, f.Key, p.Key)
		w.sleep(every)
	}
	close(stop)
	wg.Wait()
	w.sleep(every)
	w.serves(ca.client(), "9")
}

func TestInvalidFilesKeepPrevious(t *testing.T) {
	ca := newAuthority(t, "ca")
	one := ca.issue("one")
	f := filesIn(t, t.TempDir(), one, ca.PEM)
	w := newClockedSource(t, f)
	client := ca.client(ca.issue("envoy"))
	check := func(log string) {
		t.Helper()
		w.sleep(every)
		w.serves(client, "one")
		w.logged(log)
	}
	write(t, f.Cert, []byte("garbage"))
	check("keeping the previous ones")
	for range 3 {
		check("")
	}
	write(t, f.Cert, []byte("garbage"))
	check("")
	write(t, f.Cert, []byte("rubbish"))
	check("keeping the previous ones")
	if err := os.Remove(f.Cert); err != nil {
		t.Fatal(err)
	}
	check("no such file or directory")
	for range 3 {
		check("")
	}
	write(t, f.Cert, one.Cert)
	check(`msg="TLS files changed"`)
	write(t, f.ClientCA, append(bytes.Clone(ca.PEM), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
	w.sleep(every)
	w.serves(client, "one")
	if got := w.lines(); len(got) != 2 || !strings.Contains(got[0], `msg="TLS files changed"`) || !strings.Contains(got[1], `msg="a certificate of a CA file is not used"`) {
		t.Errorf("logged %q", got)
	}
	write(t, f.ClientCA, one.Key)
	check(f.ClientCA + ": certificate 1 (line 1): is a PRIVATE KEY, but only certificates are allowed")
	write(t, f.ClientCA, nil)
	check("contains no certificate")
}

func TestOpenErrors(t *testing.T) {
	ca := newAuthority(t, "ca")
	good := filesIn(t, t.TempDir(), ca.issue("one"), ca.PEM)
	none := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		files Files
		want  string
	}{
		{Files{}, "a certificate is missing"},
		{Files{ClientCA: good.ClientCA}, "a certificate is missing"},
		{Files{Cert: good.Cert}, "private key is missing"},
		{Files{Cert: none, Key: good.Key}, "TLS: open " + none + ": no such file"},
		{Files{Cert: good.Cert, Key: good.Key, ClientCA: none}, "TLS: open " + none + ": no such file"},
		{Files{Cert: good.Cert, Key: good.Cert}, "certificate " + good.Cert + ", key " + good.Cert},
		{Files{Cert: good.Cert, Key: good.Key, ClientCA: good.Key}, good.Key + ": certificate 1 (line 1): is a PRIVATE KEY"},
	} {
		if _, err := Open(c.files, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error with %q", c.files, err, c.want)
		}
	}
	if (Files{}).Configured() || !good.Configured() {
		t.Error("Configured")
	}
}

// The expiry of a certificate is logged 30 days before, and when it has happened. Each is logged
// once, even if the files do not change.
func TestExpiry(t *testing.T) {
	ca := newAuthority(t, "ca")
	dir := t.TempDir()
	start := time.Now()
	until := func(days int) Files {
		pair := ca.IssueUntil(start.AddDate(0, 0, days), "server", "server")
		return filesIn(t, dir, pair, nil)
	}
	w := newClockedSource(t, until(40))
	ends := func(days int) {
		t.Helper()
		if got, want := w.source.FirstExpiry(), start.AddDate(0, 0, days); got.Sub(want).Abs() > time.Second {
			t.Errorf("ends at %v, want %v", got, want)
		}
	}
	ends(40)
	w.source.refresh(t.Context())
	w.logged("")
	w.sleep(10 * 24 * time.Hour)
	w.source.refresh(t.Context())
	w.logged("the certificate of --tls-cert expires soon")
	w.sleep(time.Hour)
	w.source.refresh(t.Context())
	w.logged("")
	w.sleep(30 * 24 * time.Hour)
	w.source.refresh(t.Context())
	w.logged("the certificate of --tls-cert has expired")
	w.sleep(time.Hour)
	w.source.refresh(t.Context())
	w.logged("")
	until(50)
	ends(40) // no handshake has checked the files yet
	w.sleep(time.Hour)
	w.source.refresh(t.Context())
	ends(50)
	if got := w.lines(); len(got) != 2 || !strings.Contains(got[0], "TLS files changed") || !strings.Contains(got[1], "expires soon") {
		t.Error(got)
	}
}

// The first certificate of the chain to expire counts. Open logs a warning, too.
func TestExpiryAtStart(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	start := time.Now()
	pair := ca.IssueUntil(start.AddDate(0, 0, 60), "server", "server")
	pair.Cert = append(pair.Cert, other.IssueUntil(start.AddDate(0, 0, 20), "between").Cert...)
	var log bytes.Buffer
	s, err := Open(filesIn(t, t.TempDir(), pair, nil), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.FirstExpiry(), start.AddDate(0, 0, 20); got.Sub(want).Abs() > time.Second {
		t.Errorf("ends at %v, want %v", got, want)
	}
	if !strings.Contains(log.String(), "the certificate of --tls-cert expires soon") {
		t.Errorf("logged %q", log.String())
	}
}

// If the clock is set back, the files are still reloaded.
func TestClockSetBackStillReloads(t *testing.T) {
	ca := newAuthority(t, "ca")
	f := filesIn(t, t.TempDir(), ca.issue("one"), nil)
	w := newClockedSource(t, f)
	w.serves(ca.client(), "one")
	two := ca.issue("two")
	write(t, f.Cert, two.Cert)
	write(t, f.Key, two.Key)
	w.sleep(-30 * time.Minute)
	w.serves(ca.client(), "two")
}

// A file that is rewritten in place long after the read counts as changed, even with the same size.
func TestRewriteWithSameSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tls.crt")
	state := func(content string, age time.Duration) []os.FileInfo {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(-age)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		return stampsOf([]string{path})
	}
	old, read := state("one", time.Hour), time.Now().Add(-time.Minute)
	if !same(stampsOf([]string{path}), old, read) {
		t.Error("an unchanged file counts as changed")
	}
	if same(state("two", time.Second), old, read) {
		t.Error("a changed file counts as unchanged")
	}
}

// While the file system of the certificates hangs, handshakes use the last ones. One read hangs, not one for each
// handshake, and one line is logged.
func TestHungTLSFiles(t *testing.T) {
	hung := func(name string, f func(t *testing.T, log *logtest.Log, dir string, ca authority, wait, resume func())) {
		t.Run("SAFE-9 "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hangs := make(chan struct{})
				f(t, new(logtest.Log), t.TempDir(), newAuthority(t, "ca"), func() { <-hangs }, func() { close(hangs); synctest.Wait() })
			})
		})
	}
	hung("server", func(t *testing.T, log *logtest.Log, dir string, ca authority, wait, resume func()) {
		f := filesIn(t, dir, ca.issue("one"), nil)
		s, err := Open(f, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		serves := func(want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			state, err, serverErr := shake(s.Config(), ca.client())
			if err != nil || state.PeerCertificates[0].Subject.CommonName != want || time.Since(began) > within {
				t.Error(err, serverErr, time.Since(began))
			}
		}
		serves("one", 0)
		var reads atomic.Int32
		s.stampsOf = func(paths []string) []fs.FileInfo {
			reads.Add(1)
			wait()
			return stampsOf(paths)
		}
		filesIn(t, dir, ca.issue("two"), nil)
		time.Sleep(every)
		serves("one", disk.ReadTime)
		for range 20 {
			time.Sleep(every)
			serves("one", 0)
		}
		if reads.Load() != 1 || len(log.Lines("level=WARN")) != 1 {
			t.Errorf("%d reads:\n%s", reads.Load(), log.String())
		}
		resume()
		serves("two", 0)
	})
	hung("client", func(t *testing.T, log *logtest.Log, dir string, ca authority, wait, resume func()) {
		one := filesIn(t, dir, ca.issue("one"), nil)
		s := newClientSource(ClientFiles{Cert: one.Cert, Key: one.Key}, slog.New(slog.NewTextHandler(log, nil)))
		shows := func(want string, within time.Duration) {
			t.Helper()
			began := time.Now()
			c, err := s.config(t.Context())
			if err != nil || c.Certificates[0].Leaf.Subject.CommonName != want || time.Since(began) > within {
				t.Error(c, err, time.Since(began))
			}
		}
		shows("one", 0)
		var reads atomic.Int32
		s.read = func() (*tls.Config, []string, error) {
			reads.Add(1)
			wait()
			return s.files.config()
		}
		filesIn(t, dir, ca.issue("two"), nil)
		shows("one", disk.ReadTime)
		for range 20 {
			shows("one", 0)
		}
		if reads.Load() != 1 || len(log.Lines("level=WARN")) != 1 {
			t.Errorf("%d reads:\n%s", reads.Load(), log.String())
		}
		resume()
		shows("two", 0)
		c := newClientSource(ClientFiles{Cert: one.Cert, Key: one.Key}, nil)
		again := make(chan struct{})
		defer close(again)
		c.read = func() (*tls.Config, []string, error) { <-again; return nil, nil, nil }
		if _, err := c.config(t.Context()); err == nil || !strings.Contains(err.Error(), "does not answer") {
			t.Errorf("without earlier content: %v", err)
		}
	})
}

// A pipe in place of a file of TLS is an error, and nothing waits for its writer.
func TestFilesOfTLSAreRegular(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	_, server := Open(Files{Cert: pipe, Key: pipe}, slog.New(slog.DiscardHandler))
	_, ca := ClientFiles{CA: pipe}.Config(nil)
	_, client := ClientFiles{Cert: pipe, Key: pipe}.Config(nil)
	for what, err := range map[string]error{"server": server, "CA": ca, "client": client} {
		if err == nil || !strings.Contains(err.Error(), "named pipe, not a regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
