package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// In one commit a listener moves to another port, and a new listener takes its old port. The new name sorts
// before the old one. Envoy applies the listeners of a response in their order, and refuses a listener with the
// address of another.
func TestListenerTakesAddressOfAnother(t *testing.T) {
	t.Parallel()
	everywhere(t, "HEAL-4 one commit", func(t *testing.T, v variant) {
		s := startStrict(t, v)
		c := newAddressCase(t)
		files := team{s.daemon, "."}
		files.has("case.yaml", c.file("before"))
		eventually(t, soon, "web serves", c.serves(c.old, "web-1"))
		p := s.Mark("web moves, api takes its port")
		files.has("case.yaml", c.file("after"))
		eventually(t, soon, "api has the port", c.serves(c.old, "api"))
		eventually(t, soon, "web has moved", c.serves(c.new, "web-2"))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())

		p = s.Mark("web is deleted, and its port goes to another new listener")
		after := strings.Split(string(c.file("after")), "---\n")
		files.has("case.yaml", []byte(after[1]+"---\n"+strings.NewReplacer("name: web\n", "name: aaa\n", "web-2", "aaa").Replace(after[0])))
		eventually(t, soon, "the new listener has the port", c.serves(c.new, "aaa"))
		s.quiet()
		exactly(t, 0, "NACK", s.Since(p).NACKs())
	})

	for _, settle := range []string{"0", "200ms"} {
		t.Run("HEAL-4 exported files: --settle "+settle, func(t *testing.T) {
			t.Parallel()
			x := newExport(t, nil, "--settle", settle)
			c := newAddressCase(t)
			put := func(name string) {
				t.Helper()
				next := filepath.Join(t.TempDir(), "next")
				if err := os.WriteFile(next, c.file(name), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(next, filepath.Join(x.dir, "case.yaml")); err != nil {
					t.Fatal(err)
				}
			}
			put("before")
			x.once()
			x.boot()
			eventually(t, soon, "web serves", c.serves(c.old, "web-1"))
			put("after") // the next export reads the addresses from the files of the last one
			x.once()
			eventually(t, soon, "api has the port", c.serves(c.old, "api"))
			eventually(t, soon, "web has moved", c.serves(c.new, "web-2"))
			x.accepted()
		})
	}
}

// An addressCase has the ports of testdata/address.
type addressCase struct {
	t        *testing.T
	old, new int
}

func newAddressCase(t *testing.T) addressCase {
	return addressCase{t, freePort(t), freePort(t)}
}

// file returns a file of testdata/address with the ports of the case.
func (c addressCase) file(name string) []byte {
	c.t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/address", name+".yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	return []byte(strings.NewReplacer("15001", fmt.Sprint(c.old), "15002", fmt.Sprint(c.new)).Replace(string(b)))
}

// serves returns a check that a new connection to a port gets this answer.
func (c addressCase) serves(port int, want string) func() error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func() error {
		r, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		if err != nil {
			return err
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err == nil && strings.TrimSpace(string(b)) != want {
			err = fmt.Errorf("%q, not %q", b, want)
		}
		return err
	}
}
