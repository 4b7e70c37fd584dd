package certs

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A CA bundle counts without its unusable members, whose places are reported.
func TestPoolWithoutUnusableMembers(t *testing.T) {
	one, two := newAuthority(t, "one").PEM, newAuthority(t, "two").PEM
	pem := func(kind, content string) []byte {
		return []byte("-----BEGIN " + kind + "-----\n" + content + "\n-----END " + kind + "-----\n")
	}
	truncated := append(bytes.Clone(one[:bytes.IndexByte(one, '\n')+20]), '\n')
	line := 2 + bytes.Count(one, []byte("\n")) // of the second member, after a line of text
	for name, c := range map[string]struct {
		second []byte
		want   string
	}{
		"malformed certificate": {pem("CERTIFICATE", "AAAA"), "x509: "},
		"malformed base64":      {pem("CERTIFICATE", "A*A"), "malformed PEM"},
		"truncated member":      {truncated, "malformed PEM"},
		"empty certificate":     {pem("CERTIFICATE", ""), "x509: "},
		"private key":           {pem("PRIVATE KEY", "AAAA"), "is a PRIVATE KEY, but only certificates are allowed"},
		"trust of OpenSSL":      {pem("TRUSTED CERTIFICATE", "AAAA"), "is a TRUSTED CERTIFICATE"},
		"member without an end": {pem("CERTIFICATE", "AAAA")[:33], "malformed PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			p, skipped, err := Pool(slices.Concat([]byte("a comment\n"), one, c.second, two))
			want := "certificate 2 (line " + strconv.Itoa(line) + "): "
			if err != nil || len(skipped) != 1 || !strings.HasPrefix(skipped[0], want) || !strings.Contains(skipped[0], c.want) {
				t.Fatalf("%q, %v; want %s%s", skipped, err, want, c.want)
			}
			both, none, err := Pool(slices.Concat(one, two))
			if err != nil || len(none) > 0 || !p.Equal(both) {
				t.Errorf("the other certificates do not count: %q, %v", none, err)
			}
			if p, _, err := Pool(c.second); err == nil || p != nil {
				t.Errorf("a file without a usable certificate: %v, %v", p, err)
			}
		})
	}
}

// A client reports an unusable CA certificate once, however often it connects.
func TestClientReportsUnusableCAOnce(t *testing.T) {
	ca := newAuthority(t, "ca").PEM
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, append(bytes.Clone(ca), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	config := ClientConfig(ClientFiles{CA: path}, slog.New(slog.NewTextHandler(&log, nil)))
	want := x509.NewCertPool()
	want.AppendCertsFromPEM(ca)
	for range 3 {
		c, err := config(t.Context())
		if err != nil || !c.RootCAs.Equal(want) {
			t.Fatal(c, err)
		}
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "file="+path) || !strings.Contains(got, "certificate 2 (line ") {
		t.Error(got)
	}
}
