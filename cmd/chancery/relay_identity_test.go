package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// SAFE-6: a relay with tokens keeps its clients apart, and nothing of a token is in its log, its answers, its metrics, its files,
// or upstream.
func TestRelayWithTokensSeparatesClients(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, filepath.Join(t.TempDir(), "jwks.json"))
	up := serve(t, []string{"--log-level", "debug"}, "a.yaml", cluster("web-1"), "b.yaml", cluster("pay-1"))
	rules := filepath.Join(t.TempDir(), "access.yaml")
	if err := os.WriteFile(rules, []byte(`rules:
- identity: {uri: "spiffe://example/{who}"}
  node: {id: "{who}"}
  names: {CDS: ["{who}-*"]}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	state, port := t.TempDir(), freePort(t)
	socket := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
	d := serveDir(t, "xds://"+up.conn.Target()+"?delta&node=relay", append(i.flags(), "--access", rules, "--state-dir", state, "--admin-listen", socket,
		"--metrics-listen", "127.0.0.1:"+port, "--pass-refusals", "--log-level", "debug")...)
	d.dial(d.conn.Target(), insecure.NewCredentials())
	token := i.token("spiffe://example/web", time.Now().Add(time.Hour))
	bearer := []string{"authorization", "Bearer " + token}
	s := d.as("web", bearer...)
	s.gets("web-1")
	d.as("pay", bearer...).refused(codes.PermissionDenied, "")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(state, "*", "last-good")); len(found) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("nothing is stored")
		}
	}
	said := map[string]string{}
	for _, args := range [][]string{{"status", "-o", "json", "--all"}, {"get", "clients", "-o", "json"}, {"explain", "web", "-o", "json"}, {"status", "web"}} {
		out, err := exec.CommandContext(t.Context(), binary, append(args, "--admin", socket)...).CombinedOutput()
		if err != nil {
			t.Error(args, err)
		}
		said[fmt.Sprint(args)] = string(out)
	}
	report := filepath.Join(t.TempDir(), "report.tar.gz")
	chancery(t, 0, "", "bugreport", "--admin", socket, "--metrics-listen", "127.0.0.1:"+port, "--node", "web", "--out", report)
	data, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if data, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	said["bugreport"] = string(data)
	_ = filepath.WalkDir(state, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			data, _ := os.ReadFile(path)
			said[path] = string(data)
		}
		return err
	})
	for _, of := range []*runningServer{d, up} {
		lines := ""
		for len(of.log) > 0 {
			b, _ := json.Marshal(<-of.log)
			lines += string(b) + "\n"
		}
		said["log of "+of.dir] = lines
	}
	for of, text := range said {
		if text == "" {
			t.Errorf("%s: no line was logged", of)
		}
		for _, part := range append(strings.Split(token, "."), "Bearer") {
			if strings.Contains(text, part) {
				t.Errorf("%s has %q of the token", of, part)
			}
		}
	}
}
