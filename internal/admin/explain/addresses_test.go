package explain

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// The place of a listener that a client refuses because of its address is the address.
func TestRefusedAddress(t *testing.T) {
	on := func(port, name string) string {
		return strings.Replace(httpListener(name, "r"), "port_value: 1000", "port_value: "+port, 1)
	}
	const duplicate = "Error adding/updating listener(s) http: error adding listener: 'http' has duplicate address '127.0.0.1:1000' as existing listener"
	for _, f := range []struct {
		name, what, error string
		files             []string
		held              string // the listener in quarantine; "": none
		says              []string
		blamed            string // names and places, as in the log
	}{
		{
			name: "a port in use", what: "LDS second", error: "Error adding/updating listener(s) second: cannot bind '127.0.0.1:1001': Address already in use",
			files:  []string{"l.yaml", resources(on("1000", "http")), "m.yaml", resources(on("1001", "second"))},
			says:   []string{"accepted: BROKEN: the client refused it", "[m.yaml:4:29]", "advice: correct m.yaml:4:29; if the cause"},
			blamed: "second m.yaml:4:29",
		},
		{
			name: "two listeners on a socket", what: "LDS aaa", error: duplicate, held: "aaa",
			files:  []string{"l.yaml", resources(on("1000", "http")), "a.yaml", resources(on("1000", "aaa"))},
			says:   []string{`valid: BROKEN: resources[0].address.socket_address: LDS "aaa" listens on TCP 127.0.0.1:1000, and so does "http" at l.yaml:2:3 [a.yaml:4:29]`, "accepted: BROKEN: the client refused it", "advice: correct a.yaml:4:29"},
			blamed: "http l.yaml:4:29, aaa a.yaml:4:29",
		},
		{
			name: "an exchange of addresses", what: "LDS http", error: duplicate, held: "http",
			files:  []string{"l.yaml", resources(on("1000", "http")), "a.yaml", resources(on("1001", "aaa"))},
			says:   []string{"valid: ok", "advice: correct l.yaml:4:29; listeners that exchange their addresses need two commits: first delete one"},
			blamed: "http l.yaml:4:29",
		},
	} {
		within(t, f.name, func(t *testing.T) {
			r := start(t, append(f.files, "c.yaml", resources(cluster("a")), "r.yaml", resources(route("r", "a")))...)
			if f.held != "" {
				r.deps.Held = func(_ *server.Stream, t *xds.Type) []quarantine.Held {
					if !t.Is(xds.Listener) {
						return nil
					}
					return []quarantine.Held{{Name: f.held, Refused: "v2"}}
				}
				r.Explainer = New(r.deps)
			}
			c := xdstest.SotW(r, r.conn, r.node("edge-1"))
			c.Subscribe(xds.Listener)
			c.NACK(c.Next(xds.Listener), f.error)
			synctest.Wait()
			_, text := r.explain("edge-1", f.what)
			for _, part := range f.says {
				if !strings.Contains(text, part) {
					t.Errorf("no %q in\n%s", part, text)
				}
			}
			list := func(found []api.Resource) string {
				var all []string
				for _, one := range found {
					all = append(all, one.Name+" "+strings.ReplaceAll(one.Place, r.dir+"/", ""))
				}
				return strings.Join(all, ", ")
			}
			names := []string{"aaa", "http", "second"}
			if got := list(r.Faulty(context.Background(), []string{"default"}, xds.Listener, f.error, names)); got != f.blamed {
				t.Errorf("log: %s, want %s", got, f.blamed)
			}
			_, name, _ := strings.Cut(f.what, " ")
			if got := list(r.Blame(context.Background(), []api.Refusal{{Type: "LDS", Error: f.error, Nodes: []string{"edge-1"}}})[0].Resources); !strings.Contains(f.blamed, got) || !strings.Contains(got, name+" ") || strings.Contains(got, ",") {
				t.Errorf("status: %s", got)
			}
		})
	}
}
