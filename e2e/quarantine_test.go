package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/e2e/tap"
	"github.com/chancery-xds/chancery/internal/admin/api"
	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
)

// For each mistake that a real Envoy refuses: within a second Envoy has the other resources of the
// response, and the previous content of the refused one. Status still shows the refused resource
// and its place.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	each(t, "OBS-1 one refused resource holds up no other", func(t *testing.T, v variant) {
		at := "unix://" + filepath.Join(t.TempDir(), "admin.sock")
		s := siteOf(t, func(w world) *rig {
			return newRig(t, w, sourcedBy(v, renamed), "--admin-listen", at, "--quarantine")
		})
		s.provoked = `SOTW-14 DELTA-1 resource "good" twice` // the files of one case have this name twice
		s.start(v)
		admin, err := adminclient.Dial(adminclient.Target{URL: at})
		if err != nil {
			t.Fatal(err)
		}
		files := team{s.daemon, "."}
		state := func(typ, name string) (api.State, error) {
			r, err := admin.ClientResources(context.Background(), "e2e", typ, name, 0)
			if err != nil || len(r.Items) != 1 {
				return "", fmt.Errorf("%+v, %w", r, err)
			}
			return r.Items[0].State, nil
		}
		for _, f := range faults(freePort(t), freePort(t)) {
			p := s.Mark("%s", f.name)
			files.has("case.yaml", []byte("resources:"+f.file+"\n"))
			s.sees(p, soon, "a NACK: "+f.name, func(rs tap.Records) bool { return len(rs.NACKs(f.typ)) > 0 })
			if f.good != "" {
				eventually(t, time.Second, "the good one is there: "+f.name, func() error {
					is, err := state(f.typ, f.good)
					if err == nil && is != api.Synced {
						err = fmt.Errorf("%s %s is %s", f.typ, f.good, is)
					}
					return err
				})
			}
			s.quiet()
			eventually(t, soon, "the refusal stands: "+f.name, func() error {
				is, err := state(f.typ, f.resource)
				if err == nil && is != api.Nacked {
					err = fmt.Errorf("%s %s is %s", f.typ, f.resource, is)
				}
				if err != nil {
					return err
				}
				refusals, err := admin.Refusals(context.Background())
				if err != nil || len(refusals.Items) != 1 || len(refusals.Items[0].Resources) != len(f.lines()) ||
					refusals.Items[0].Resources[0].Name != f.resource || !strings.Contains(refusals.Items[0].Resources[0].Place, f.lines()[0]) {
					return fmt.Errorf("%+v, %w", refusals, err)
				}
				return nil
			})
			s.Mark("reverted")
			files.has("case.yaml", []byte("# nothing\n"))
			s.nextChange()
			s.quiet()
			eventually(t, soon, "nothing is refused any more", func() error {
				x, err := admin.Explain(context.Background(), "e2e", "", "")
				if err == nil && x.Broken != "" {
					err = fmt.Errorf("broken at %s: %+v", x.Broken, x.Links)
				}
				return err
			})
		}
	})
}
