package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A team is a directory below that of the configuration.
type team struct {
	*daemon
	name string
}

// has puts a file into the directory, in one step.
func (d team) has(file string, content []byte) {
	d.t.Helper()
	dir := filepath.Join(d.dir, d.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		d.t.Fatal(err)
	}
	next := filepath.Join(dir, ".next")
	if err := os.WriteFile(next, content, 0o644); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(dir, file)); err != nil {
		d.t.Fatal(err)
	}
}

func documentsOf(resources ...proto.Message) []byte { return newWorld(resources...).documents("") }

// An edit of a file moves a node to a canary group and back, under load. The canary's routes use a
// cluster that only this group has.
func TestGroups(t *testing.T) {
	t.Parallel()
	each(t, "SUB-4 ADS-3 a canary takes an Envoy and gives it back", func(t *testing.T, v variant) {
		s := startSite(t, v)
		l := loaded(t, s.ingress, nil)
		canary := team{s.daemon, "canary"}
		p := s.Mark("a canary comes, which no node matches")
		canary.has("group.yaml", []byte("match: {id: nobody}\ninclude: [default]\n"))
		canary.has("world.yaml", documentsOf(
			routes("ingress", "2", "mine"), edsCluster("mine", time.Second), assignment("mine", s.b.port)))
		s.nextChange()
		carries(t, "EDS other", s.Since(p).Responses())

		s.Mark("the canary takes this Envoy")
		canary.has("group.yaml", []byte("match: {id: e2e}\ninclude: [default]\n"))
		eventually(t, prompt, "traffic moves", s.ingress.gets(answer{"b", "2"}))
		s.quiet()

		p = s.Mark("an error in a file of the canary, which is alone with it")
		canary.has("group.yaml", []byte("match: {id: e2e}\ninclude: [default]\non_error: alone\n"))
		canary.has("broken.yaml", []byte("a: ["))
		s.nextChange()
		if err := s.ingress.gets(answer{"b", "2"})(); err != nil {
			t.Error("what the canary had before its error:", err)
		}
		if len(s.daemon.logged("configuration error")) == 0 {
			t.Error("the error of a group that is alone is not in the log")
		}
		if err := os.Remove(filepath.Join(s.daemon.dir, "canary", "broken.yaml")); err != nil {
			t.Fatal(err)
		}
		s.nextChange()
		exactly(t, 0, "CDS, LDS or RDS response", s.Since(p).Responses("CDS", "LDS", "RDS"))

		s.Mark("the canary lets it go")
		canary.has("group.yaml", []byte("match: {id: nobody}\ninclude: [default]\n"))
		eventually(t, prompt, "traffic moves back", s.ingress.gets(answer{"a", "1"}))
		s.quiet()
		eventually(t, soon, "the canary's cluster is gone", s.envoy.hasClusters("backend", "other"))
		exactly(t, 0, "NACK", s.Since(0).NACKs())
		exactly(t, 1, "stream", s.Since(0).Opened())
		l.Unharmed(t)
	})
	t.Run("SUB-4 a node that matches nothing is refused, and served when it does", func(t *testing.T) {
		s := newSite(t, renamed)
		root, mine := team{s.daemon, "."}, team{s.daemon, "mine"}
		root.has("group.yaml", []byte("otherwise: refuse\n"))
		mine.has("group.yaml", []byte("match: {id: other}\ninclude: [default]\n"))
		eventually(t, soon, "nodes that match nothing are refused", func() error {
			if err := s.daemon.serves()(); status.Code(err) != codes.PermissionDenied {
				return fmt.Errorf("a client that matches nothing: %w", err)
			}
			return nil
		})
		s.envoy = startEnvoy(t, "e2e", sotw, s.Addr().Port)
		eventually(t, soon, "it is said who was refused", func() error {
			if len(s.daemon.logged("client refused: its node may see nothing")) == 0 {
				return os.ErrNotExist
			}
			return nil
		})
		mine.has("group.yaml", []byte("match: {id: e2e}\ninclude: [default]\n"))
		eventually(t, 30*time.Second, "ingress serves", s.ingress.gets(answer{"a", "1"})) // Envoy tries again by and by
	})
}
