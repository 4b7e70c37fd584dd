package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

// A poller polls a daemon over REST-JSON.
type poller struct {
	*runningServer
	http *http.Client
	url  string
}

func (d *runningServer) poller(config *tls.Config, network, address string) *poller {
	d.Helper()
	tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: config != nil && len(config.NextProtos) == 0}
	if network == "unix" {
		path := address
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, path)
		}
		address = "xds"
	}
	d.Cleanup(tr.CloseIdleConnections)
	p := &poller{runningServer: d, http: &http.Client{Transport: tr, Timeout: 20 * time.Second}, url: "http://" + address}
	if config != nil {
		p.url = "https://" + address
	}
	return p
}

// poll polls for all clusters at a version. It returns the version and names of the response, or the
// status.
func (p *poller) poll(version string) (*http.Response, string, string) {
	p.Helper()
	r, err := p.http.Post(p.url+"/v3/discovery:clusters", "application/json", strings.NewReader(fmt.Sprintf(`{"node":{"id":"test"},"version_info":%q}`, version)))
	if err != nil {
		p.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		p.Fatal(err)
	}
	var m struct {
		VersionInfo string
		Resources   []struct{ Name string }
	}
	if r.StatusCode != http.StatusOK {
		return r, "", string(b)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		p.Fatalf("%v in %s", err, b)
	}
	return r, m.VersionInfo, fmt.Sprint(m.Resources)
}

func TestREST(t *testing.T) {
	t.Parallel()
	t.Run("REST-1 REST-2 an edit reaches a held poll", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--rest-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
		p := d.poller(nil, "tcp", d.logged("serving REST-JSON")["http"].(string))
		_, version, names := p.poll("")
		if names != "[{a}]" {
			t.Fatal(names)
		}
		time.AfterFunc(100*time.Millisecond, func() { write(t, d.dir, "a.yaml", cluster("b")) })
		start := time.Now()
		if _, _, names := p.poll(version); names != "[{b}]" || time.Since(start) < 100*time.Millisecond {
			t.Errorf("%s after %v", names, time.Since(start))
		}
	})
	t.Run("REST-4 SIGTERM answers polls that are held", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--rest-listen", "127.0.0.1:0", "--drain", "1h"}, "a.yaml", cluster("a"))
		p := d.poller(nil, "tcp", d.logged("serving REST-JSON")["http"].(string))
		_, version, _ := p.poll("")
		time.AfterFunc(200*time.Millisecond, func() { d.signal(syscall.SIGTERM) })
		if r, _, _ := p.poll(version); r.StatusCode != http.StatusNotModified {
			t.Error(r)
		}
		d.exits(0)
	})
	t.Run("REST-4 --max-polls", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--rest-listen", "127.0.0.1:0", "--max-polls", "1"}, "a.yaml", cluster("a"))
		at := d.logged("serving REST-JSON")["http"].(string)
		p := d.poller(nil, "tcp", at)
		_, version, _ := p.poll("")
		got := make(chan *http.Response, 2)
		for range 2 {
			go func() { r, _, _ := p.poll(version); got <- r }()
		}
		if r := <-got; r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "5" {
			t.Error(r)
		}
		write(t, d.dir, "a.yaml", cluster("b"))
		if r := <-got; r.StatusCode != http.StatusOK {
			t.Error(r)
		}
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		ca := tlstest.NewAuthority(t, "ca")
		own, client := ca.Issue("server", "127.0.0.1"), ca.Issue("client", node.Id)
		file := func(name string, b []byte) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		d := serve(t, []string{"--rest-listen", "0.0.0.0:0", "--tls-cert", file("crt", own.Cert), "--tls-key", file("key", own.Key), "--client-ca", file("ca", ca.PEM)},
			"s.yaml", secret, "a.yaml", cluster("a")) // secrets may go to clients with certificates
		_, port, err := net.SplitHostPort(d.logged("serving REST-JSON")["http"].(string))
		if err != nil {
			t.Fatal(err)
		}
		at := "127.0.0.1:" + port
		pair, err := tls.X509KeyPair(client.Cert, client.Key)
		if err != nil {
			t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca.PEM)
		for proto, config := range map[string]*tls.Config{
			"HTTP/2.0": {RootCAs: roots, Certificates: []tls.Certificate{pair}},
			"HTTP/1.1": {RootCAs: roots, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}},
		} {
			if r, _, names := d.poller(config, "tcp", at).poll(""); names != "[{a}]" || r.Proto != proto {
				t.Errorf("%s over %s, want %s", names, r.Proto, proto)
			}
		}
		if _, err := d.poller(&tls.Config{RootCAs: roots}, "tcp", at).http.Get("https://" + at); err == nil {
			t.Error("a client without a certificate is served")
		}
		if line := d.logged("TLS handshake failed"); line["reason"] != "no_certificate" { // OBS-4
			t.Error(line)
		}
	})
	t.Run("a socket", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "s")
		d := serve(t, []string{"--rest-listen", "unix:" + path}, "a.yaml", cluster("a"), "s.yaml", secret)
		d.logged("serving REST-JSON")
		if _, _, names := d.poller(nil, "unix", path).poll(""); names != "[{a}]" {
			t.Error(names)
		}
	})
	t.Run("HTTP/2 without TLS", func(t *testing.T) {
		t.Parallel()
		d := serve(t, []string{"--rest-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
		p := d.poller(nil, "tcp", d.logged("serving REST-JSON")["http"].(string))
		tr := p.http.Transport.(*http.Transport)
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetUnencryptedHTTP2(true)
		if r, _, names := p.poll(""); names != "[{a}]" || r.ProtoMajor != 2 {
			t.Error(r, names)
		}
	})
}
