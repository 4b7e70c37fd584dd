package daemon

import (
	"bytes"
	"context"
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/roles"
)

// The roles file and its tokens are read again when they change. An invalid file keeps the previous roles, in the log
// and in the status. An unreadable token is refused.
func TestRolesFileChanges(t *testing.T) {
	const first, second = "0123456789abcdef-first", "0123456789abcdef-second"
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "tokens: {ci: ci.token}\nbindings:\n- {role: view, subjects: [{token: ci}]}\n"
	file := filepath.Join(dir, "roles.yaml")
	synctest.Test(t, func(t *testing.T) {
		write("ci.token", first+"\n")
		write("roles.yaml", good)
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		a := newAdminRoles(file)
		if err := a.load(log); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.run(ctx, log)
		role := func(token string) string {
			time.Sleep(2*accessInterval + time.Millisecond)
			synctest.Wait()
			p := a.current.Load()
			name := p.Token(token)
			if name == "" {
				return "no token"
			}
			if g := p.Of(&roles.Proof{Token: name}).Grants(); len(g) > 0 {
				return g[0].Role
			}
			return "no role"
		}
		want := func(token, role string, got string) {
			t.Helper()
			if got != role {
				t.Errorf("SAFE-19 %s: %s, want %s\n%s", token, got, role, &out)
			}
		}
		want("first", "view", role(first))
		write("roles.yaml", strings.Replace(good, "view", "commit", 1))
		want("first", "commit", role(first))
		write("roles.yaml", strings.Replace(good, "view", "veiw", 1))
		want("first, with an invalid file", "commit", role(first))
		if all := a.troubles(); len(all) != 1 || !strings.Contains(all[0].Text, `roles.yaml:3:10: bindings[0].role: a role is view, operate or commit, not "veiw"`) || all[0].Since.IsZero() {
			t.Errorf("SAFE-19 the status has %+v", all)
		}
		if n := strings.Count(out.String(), "admin roles rejected, keeping the previous ones"); n != 1 {
			t.Errorf("SAFE-19 %d lines:\n%s", n, &out)
		}
		write("ci.token", second)
		want("first, replaced", "no token", role(first))
		want("second", "commit", role(second))
		write("roles.yaml", good)
		want("second, with a valid file", "view", role(second))
		if all := a.troubles(); all != nil {
			t.Errorf("%+v", all)
		}
		if err := os.Remove(filepath.Join(dir, "ci.token")); err != nil {
			t.Fatal(err)
		}
		want("second, removed", "no token", role(second))
		if n := strings.Count(out.String(), "a token of the admin roles is unreadable, refusing it"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &out)
		}
		cancel()
		synctest.Wait()
	})
	for text, want := range map[string]string{
		good:       "--admin-roles: " + file + ":1:14: token ci: open ",
		"bindings": "--admin-roles: " + file + ":1:1: ",
	} {
		write("roles.yaml", text)
		if err := newAdminRoles(file).load(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("SAFE-19 a start with %q: %v, want %s", text, err, want)
		}
	}
}

// The CA of the issuer is read again when its file changes. An invalid file keeps the previous CA.
func TestCAOfIssuerChanges(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate := func() string {
		server := httptest.NewTLSServer(nil)
		defer server.Close()
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	}()
	write("roles.yaml", "oidc: {issuer: 'https://issuer.example', client_id: c, ca_file: ca.crt}\nbindings:\n- {role: view, subjects: [{claims: {groups: sre}}]}\n")
	write("ca.crt", "no certificate")
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	a := newAdminRoles(filepath.Join(dir, "roles.yaml"))
	if err := a.load(log); err == nil || !strings.Contains(err.Error(), "ca.crt has no certificate in PEM") {
		t.Errorf("SAFE-20 at the start: %v", err)
	}
	write("ca.crt", certificate)
	synctest.Test(t, func(t *testing.T) {
		if err := a.load(log); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go a.run(ctx, log)
		for _, content := range []string{"x", certificate + "# " + certificate} {
			write("ca.crt", content)
			time.Sleep(2*accessInterval + time.Millisecond)
			synctest.Wait()
			if want := strings.TrimPrefix(content, "x"); want != "" && a.client.CA != want || want == "" && a.client.CA != certificate {
				t.Errorf("SAFE-20 with the file %q: %q", content, a.client.CA)
			}
		}
	})
	if n := strings.Count(out.String(), "keeping the previous one"); n != 1 {
		t.Errorf("SAFE-20 %d lines:\n%s", n, &out)
	}
}
