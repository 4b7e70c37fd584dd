package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statusgrpc "google.golang.org/genproto/googleapis/rpc/status"

	adminapi "github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/daemon"
	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
	"github.com/chancery-xds/chancery/xds"
)

// adminOf returns the address of a daemon's admin API.
func adminOf(t *testing.T, d *runningServer) string {
	t.Helper()
	for _, line := range d.passed {
		if at, ok := line["http"].(string); ok && line["msg"] == "admin API" {
			return at
		}
	}
	at, _ := d.logged("admin API")["http"].(string)
	return at
}

// client returns a client of the admin API.
func adminClient(t *testing.T, target adminclient.Target) *adminclient.Client {
	t.Helper()
	c, err := adminclient.Dial(target)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// waitResult waits until the clients are synced.
func waitResult(ctx context.Context, c *adminclient.Client, timeout time.Duration) (r *adminapi.WaitResult, _ error) {
	for line, err := range c.WaitSynced(ctx, adminclient.Wait{Timeout: timeout}) {
		if err != nil {
			return nil, err
		}
		r = line.Result
	}
	return r, nil
}

// The admin API of a running server: a client connects, accepts a resource, refuses one and leaves; files
// get errors; the server ends.
func TestAdminAPIOfRunningServer(t *testing.T) {
	d := serve(t, []string{"--drain", "3s", "--quarantine=false"}, "a.yaml", cluster("a"))
	api := adminClient(t, adminclient.Target{URL: "http://" + adminOf(t, d)})
	st, err := api.Status(d.ctx, "")
	if err != nil || st.Server.Version != testVersion || st.Server.Dir != d.dir || st.Config.Files != 1 || st.Config.Resources != 1 || st.Config.Revision == 0 || st.Config.At == nil || st.Clients.Connected != 0 {
		t.Fatalf("%+v %v", st, err)
	}
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(d.conn).StreamAggregatedResources(d.ctx)
	if err != nil {
		t.Fatal(err)
	}
	request := &discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "edge/1"}, TypeUrl: xds.Cluster.URL}
	if err := stream.Send(request); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if w, err := waitResult(d.ctx, api, 100*time.Millisecond); err != nil || w.Class != adminapi.WaitTimeout || len(w.Pending) != 1 {
		t.Errorf("before the answer: %+v %v", w, err)
	}
	answer := func(detail string) {
		t.Helper()
		ack := &discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL, ResponseNonce: r.GetNonce(), VersionInfo: r.GetVersionInfo()}
		if detail != "" {
			ack.VersionInfo, ack.ErrorDetail = "", &statusgrpc.Status{Message: detail}
		}
		if err := stream.Send(ack); err != nil {
			t.Fatal(err)
		}
	}
	answer("")
	if w, err := waitResult(d.ctx, api, 10*time.Second); err != nil || w.Class != adminapi.WaitOK {
		t.Errorf("after the reload: %+v %v", w, err)
	}
	if l, err := api.ClientResources(d.ctx, "edge/1", "CDS", "a", 0); err != nil || len(l.Items) != 1 || l.Items[0].State != adminapi.Synced {
		t.Errorf("%+v %v", l, err)
	}

	write(t, d.dir, "a.yaml", cluster("a")+"connect_timeout: 3s\n")
	if l, err := api.Reload(d.ctx, false); err != nil || l.Set != 1 || len(l.Errors) > 0 {
		t.Errorf("%+v %v", l, err)
	}
	if r, err = stream.Recv(); err != nil {
		t.Fatal(err)
	}
	answer("a: no such thing")
	w, err := waitResult(d.ctx, api, 10*time.Second)
	if err != nil || w.Done || len(w.Refusals) != 1 || len(w.Refusals[0].Resources) == 0 || !strings.HasPrefix(filepath.Base(w.Refusals[0].Resources[0].Place), "a.yaml:") {
		t.Errorf("%+v %v", w, err)
	}
	write(t, d.dir, "a.yaml", cluster("a")+"connect: 3s\n")
	if l, err := api.Reload(d.ctx, false); err != nil || len(l.Errors) != 1 {
		t.Errorf("%+v %v", l, err)
	}
	if st, err = api.Status(d.ctx, ""); err != nil || st.Config.Rejected == nil || len(st.Refusals) != 1 || st.Clients.By[adminapi.Nacked] != 1 {
		t.Errorf("%+v %v", st, err)
	}
	seen := map[string]int{}
	for e, err := range api.Events(d.ctx, adminclient.EventFilter{Stop: true}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Kind]++
	}
	if seen["commit"] != 2 || seen["reject"] != 1 || seen["connect"] != 1 || seen["ack"] != 1 || seen["nack"] != 1 {
		t.Errorf("events: %v", seen)
	}

	// The server answers requests until its last stream has ended.
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	d.logged("shutting down: closing streams")
	if st, err := api.Status(d.ctx, ""); err != nil || st.Clients.Connected != 1 {
		t.Errorf("while the server ends: %+v %v", st, err)
	}
	d.logged("ended")
	if err := d.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := api.Status(d.ctx, ""); err == nil {
		t.Error("the server answers after its end")
	}
}

// Only an authenticated caller may allow the removal of all resources.
func TestAdminAllowsMassDelete(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "admin.sock")
	d := serve(t, []string{"--admin-listen", "unix://" + socket, "--admin-listen", "127.0.0.1:0"}, "a.yaml", cluster("a"))
	var port string
	for _, line := range d.passed {
		if at, _ := line["http"].(string); strings.HasPrefix(at, "127.") {
			port = at
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if err := os.Remove(filepath.Join(d.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	open := adminClient(t, adminclient.Target{URL: "http://" + port})
	if l, err := open.Reload(d.ctx, true); err == nil || !strings.Contains(err.Error(), "needs a unix socket, a token or a client certificate") {
		t.Errorf("%+v %v", l, err)
	}
	own := adminClient(t, adminclient.Target{URL: "unix://" + socket})
	if l, err := own.Reload(d.ctx, false); err != nil || len(l.Errors) == 0 {
		t.Errorf("%+v %v", l, err)
	}
	if l, err := own.Reload(d.ctx, true); err != nil || l.Removed != 1 {
		t.Errorf("%+v %v", l, err)
	}
}

// A changed token file is read again; TLS; client certificates.
func TestAdminTokenIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	write(t, dir, "token", "0123456789abcdef\n")
	d := serve(t, []string{"--admin-token-file", file}, "a.yaml", cluster("a"))
	at := adminOf(t, d)
	ask := func() error {
		_, err := adminClient(t, adminclient.Target{URL: "http://" + at, TokenFile: file}).Status(d.ctx, "")
		return err
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	if _, err := adminClient(t, adminclient.Target{URL: "http://" + at}).Status(d.ctx, ""); err == nil {
		t.Error("let in without a token")
	}
	old := adminClient(t, adminclient.Target{URL: "http://" + at, TokenFile: file})
	write(t, dir, "token", "fedcba9876543210")
	if err := ask(); err != nil {
		t.Error(err)
	}
	if _, err := old.Status(d.ctx, ""); err == nil {
		t.Error("let in with the token of before")
	}
	write(t, dir, "token", "")
	if _, err := old.Status(d.ctx, ""); err == nil {
		t.Error("a caller is accepted although there is no token")
	}
	if line := d.logged("cannot read the token of the admin API, refusing all requests"); !strings.Contains(line["error"].(string), "0 bytes") {
		t.Errorf("%v", line)
	}

	// A pipe without a writer, for example on a mount that hangs, delays no request.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := old.Status(d.ctx, ""); err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
	if line := d.logged("cannot read the token of the admin API, refusing all requests"); !strings.Contains(line["error"].(string), "named pipe, not a regular file") {
		t.Errorf("%v", line)
	}
	if _, err := adminclient.Dial(adminclient.Target{URL: "http://" + at, TokenFile: file}); err == nil || !strings.Contains(err.Error(), "named pipe, not a regular file") {
		t.Errorf("the client: %v", err)
	}
}

func TestAdminTLS(t *testing.T) {
	dir := t.TempDir()
	ca, other := tlstest.NewAuthority(t, "ca"), tlstest.NewAuthority(t, "other")
	put := func(name string, content []byte) string {
		t.Helper()
		write(t, dir, name, string(content))
		return filepath.Join(dir, name)
	}
	own, ops, stranger := ca.Issue("server", "localhost", "127.0.0.1"), ca.Issue("ops", "ops"), other.Issue("ops", "ops")
	crt, key, trust := put("crt", own.Cert), put("key", own.Key), put("ca", ca.PEM)
	d := serve(t, []string{"--admin-tls-cert", crt, "--admin-tls-key", key, "--admin-client-ca", trust}, "a.yaml", cluster("a"))
	at := strings.Replace(adminOf(t, d), "127.0.0.1", "localhost", 1)
	for _, c := range []struct {
		target adminclient.Target
		ok     bool
	}{
		{adminclient.Target{CA: trust, Cert: put("ops.crt", ops.Cert), Key: put("ops.key", ops.Key)}, true},
		{adminclient.Target{CA: trust}, false},
		{adminclient.Target{CA: trust, Cert: put("stranger.crt", stranger.Cert), Key: put("stranger.key", stranger.Key)}, false},
	} {
		c.target.URL = "https://" + at
		if _, err := adminClient(t, c.target).Status(d.ctx, ""); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.target, err)
		}
	}
	if _, err := adminClient(t, adminclient.Target{URL: "http://" + at}).Status(d.ctx, ""); err == nil {
		t.Error("answers in plain text")
	}
}

// A TLS file that becomes invalid is a fault in the status, without a handshake, until it is valid again.
func TestStatusOfInvalidTLSFiles(t *testing.T) {
	t.Parallel()
	dir, socket := t.TempDir(), "unix://"+filepath.Join(t.TempDir(), "admin.sock")
	ca := tlstest.NewAuthority(t, "ca")
	own := ca.Issue("server", "localhost")
	flags, good := []string{"--admin-listen", socket}, map[string]string{}
	for _, of := range []string{"", "admin-"} {
		for flag, content := range map[string][]byte{of + "tls-cert": own.Cert, of + "tls-key": own.Key, of + "client-ca": ca.PEM} {
			good[flag] = string(content)
			write(t, dir, flag, string(content))
			flags = append(flags, "--"+flag, filepath.Join(dir, flag))
		}
	}
	d := serve(t, flags, "a.yaml", cluster("a"))
	names := []string{"client-ca", "admin-tls-key"}
	for _, flag := range names {
		write(t, dir, flag, "x")
	}
	for range names {
		d.logged("new TLS files are invalid: keeping the previous ones")
	}
	for _, says := range []string{"rejected-tls ", filepath.Join(dir, "client-ca") + ": contains no certificate", filepath.Join(dir, "admin-tls-key") + ": tls: "} {
		chancery(t, 1, says, "status", "--admin", socket)
	}
	for _, flag := range names {
		write(t, dir, flag, good[flag])
	}
	for range names {
		d.logged("TLS files changed")
	}
	chancery(t, 0, "1 resource in 1 file", "status", "--admin", socket)
}

// A server that starts before its predecessor has ended takes the addresses of the admin API and of metrics when
// they are free. Until then, the hint of a command names its control socket.
func TestOverlappingRestartTakesFreedAddresses(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	socket := filepath.Join(t.TempDir(), "admin.sock")
	port, other := freePort(t), freePort(t)
	flags := []string{"--admin-listen", "127.0.0.1:" + port, "--admin-listen", "unix://" + socket, "--metrics-listen", "127.0.0.1:" + other, "--state-dir", ""}
	dir := t.TempDir()
	write(t, dir, "a.yaml", cluster("a"))
	old := serveDir(t, dir, flags...)
	next := serveDir(t, dir, flags...)
	var waits []string
	for _, line := range next.passed {
		if line["msg"] == "the address of a listener is in use, trying it until it is free" {
			waits = append(waits, fmt.Sprint(line["for"]))
		}
	}
	if want := []string{"metrics and health", "admin API", "admin API"}; !slices.Equal(waits, want) {
		t.Errorf("waits for the addresses of %q, want %q", waits, want)
	}
	control, err := filepath.Glob(os.Getenv("XDG_RUNTIME_DIR") + "/chancery/*-*/admin")
	if err != nil || len(control) != 2 {
		t.Fatal(control, err)
	}
	chancery(t, 3, "servers of this user answer at other addresses: --admin unix://"+control[0]+" or unix://"+control[1], "status", "--admin", "http://127.0.0.1:"+freePort(t))
	old.signal(syscall.SIGTERM)
	took := map[any]bool{}
	for len(took) < 3 {
		line := <-next.log
		if line == nil {
			t.Fatalf("the log ended after %v", took)
		}
		next.passed = append(next.passed, line)
		if line["msg"] == "admin API" || line["msg"] == "metrics and health" {
			took[line["http"]] = true
		}
	}
	for _, target := range []string{"http://127.0.0.1:" + port, "unix://" + socket} {
		about, err := adminClient(t, adminclient.Target{URL: target}).About(next.ctx)
		if err != nil || about.Server.PID != next.cmd.Process.Pid {
			t.Errorf("%s: %+v, %v", target, about, err)
		}
	}
	next.loggedAround("the other server has ended: chancery reload reaches this one")
	chancery(t, 0, fmt.Sprintf("process %d", next.cmd.Process.Pid), "reload", dir, "--state-dir", "")
}

// If another program has the default port, the server starts without the admin API.
func TestServerStartsWithoutAdminIfPortIsTaken(t *testing.T) {
	t.Setenv("CHANCERY_ADMIN_LISTEN", "") // the default port, which another server on this machine may have
	l, err := net.Listen("tcp", daemon.AdminAddress)
	if err != nil {
		t.Logf("somebody has the port: %v", err)
	} else {
		defer l.Close()
	}
	d := serve(t, nil, "a.yaml", cluster("a"))
	d.meanwhile("the address of a listener is in use, trying it until it is free")
}

// A server that requires a token does not start then: clients would send their token to the other program.
func TestServerWithTokenNeedsItsAdminPort(t *testing.T) {
	t.Setenv("CHANCERY_ADMIN_LISTEN", "")
	l, err := net.Listen("tcp", daemon.AdminAddress)
	if err != nil {
		t.Logf("somebody has the port: %v", err)
	} else {
		defer l.Close()
	}
	dir := t.TempDir()
	write(t, dir, "good/a.yaml", cluster("a"), "token", strings.Repeat("x", 20))
	chancery(t, 1, "port 18001 is in use already", "serve", filepath.Join(dir, "good"), "--state-dir", "", "--listen", "127.0.0.1:0", "--admin-token-file", filepath.Join(dir, "token"))
}

func TestAdminOff(t *testing.T) {
	d := serve(t, []string{"--admin-listen", ""}, "a.yaml", cluster("a"))
	ctx, cancel := context.WithTimeout(d.ctx, 300*time.Millisecond)
	defer cancel()
	for {
		select {
		case line := <-d.log:
			if line["msg"] == "admin API" {
				t.Error(line)
			}
			continue
		case <-ctx.Done():
		}
		break
	}
}

// Invalid values of --admin-listen.
func TestAdminUsage(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good/a.yaml", cluster("a"), "short", "123", "two", "0123456789 abcdef", "long", strings.Repeat("x", 5000))
	for _, c := range []struct {
		code  int
		says  string
		flags []string
	}{
		{2, "--admin-listen: 0.0.0.0:1 can be reached from other machines: give --admin-token-file, --admin-client-ca or --admin-roles", []string{"--admin-listen", "0.0.0.0:1"}},
		{2, "can be reached from other machines", []string{"--admin-listen", ":1"}},
		{2, "can be reached from other machines", []string{"--admin-listen", "admin.example:1"}},
		{2, "can be reached from other machines", []string{"--admin-listen", "0.0.0.0:1", "--admin-tls-cert", "x", "--admin-tls-key", "x"}},
		{2, "--admin-listen: address \"x\"", []string{"--admin-listen", "x"}},
		{2, "needs both --admin-tls-cert and --admin-tls-key", []string{"--admin-client-ca", "x"}},
		{2, "--listen and --admin-listen: both use the address 127.0.0.1:1", []string{"--listen", "127.0.0.1:1", "--admin-listen", "127.0.0.1:1"}},
		{1, "no such file", []string{"--admin-token-file", dir + "/none"}},
		{1, "has 3 bytes, but must have 16 or more", []string{"--admin-token-file", dir + "/short"}},
		{1, "must be one word", []string{"--admin-token-file", dir + "/two"}},
		{1, "more than 4096 bytes", []string{"--admin-token-file", dir + "/long"}},
		{1, "no such file", []string{"--admin-tls-cert", dir + "/none", "--admin-tls-key", dir + "/none"}},
	} {
		flags := c.flags
		if !strings.Contains(strings.Join(flags, " "), "--listen") {
			flags = append(flags, "--listen", "127.0.0.1:0")
		}
		chancery(t, c.code, c.says, append([]string{"serve", filepath.Join(dir, "good"), "--state-dir", ""}, flags...)...)
	}
}

// The paths of a running server answer as the OpenAPI document describes.
func TestAdminAnswersMatchOpenAPI(t *testing.T) {
	d := serve(t, nil, "a.yaml", cluster("a"))
	base := "http://" + adminOf(t, d)
	for _, path := range []string{"/", "/version", "/api/v1/openapi.yaml", "/api/v1/resources/CDS/a", "/api/v1/groups", "/config_dump"} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK && path != "/config_dump" || strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") && !json.Valid(b) {
			t.Errorf("%s: %s %.200s", path, resp.Status, b)
		}
	}
}
