package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// "A start on nothing, on mistakes or on half a configuration tells no client that
// anything is gone: the last good is served, or nothing is answered." (SAFE-10)
func TestSafeStart(t *testing.T) {
	t.Parallel()
	each(t, "SAFE-10 an Envoy lives on while its server is restarted on bad files", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		broken := filepath.Join(s.daemon.dir, "broken.yaml")
		restarted := func(harm func() error) {
			t.Helper()
			s.kill()
			if err := harm(); err != nil {
				t.Fatal(err)
			}
			p := s.restart()
			s.back(p)
			s.quiet()
			exactly(t, 0, "CDS or LDS response", s.Since(p).Responses("CDS", "LDS"))
			exactly(t, 0, "NACK", s.Since(p).NACKs())
		}
		restarted(func() error { return os.WriteFile(broken, []byte("a: ["), 0o644) })
		moved := filepath.Join(filepath.Dir(s.daemon.dir), "moved")
		restarted(func() error { return os.Rename(s.daemon.dir, moved) })
		restarted(func() error { return os.Mkdir(s.daemon.dir, 0o755) })
		if err := os.Remove(s.daemon.dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(moved, "broken.yaml")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(moved, s.daemon.dir); err != nil {
			t.Fatal(err)
		}
		s.nextChange()
		l.Unharmed(t)
	})
}
