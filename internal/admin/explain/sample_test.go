package explain

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chancery-xds/chancery/xds"
	"github.com/chancery-xds/chancery/xds/xdstest"
)

// The sample of explain in docs/commands.md is the real output for a client in this state.
func TestSampleOfDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	within(t, "refused", func(t *testing.T) {
		in := `"@type": type.googleapis.com/envoy.config.listener.v3.Listener
name: ingress-443
address:
  socket_address: {address: 127.0.0.1, port_value: 1000}
filter_chains:
- filters:
  - name: tcp
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
      cluster: pay
      stat_prefix: ""
`
		r := start(t, "edge/group.yaml", "match: {id: \"edge-*\"}\n", "edge/listeners.yaml", in, "edge/c.yaml", resources(cluster("pay")))
		c := xdstest.Delta(r, r.conn, r.node("edge-7d9f-x2"))
		takes(c, xds.Cluster)
		c.Subscribe(xds.Listener, "*")
		c.NACK(c.Next(xds.Listener), "Error adding/updating listener(s) ingress-443: StatPrefix: value length must be at least 1 characters")
		synctest.Wait()
		r.late = 6 * time.Minute
		x, _ := r.explain("edge-7d9f-x2", "LDS ingress-443")
		var b strings.Builder
		for _, l := range x.Links {
			if !l.Known {
				continue
			}
			mark := map[bool]string{true: "✔", false: "✘"}[l.OK]
			fmt.Fprintf(&b, "%s %-11s %s%s\n", mark, l.Name, l.Text, after("  ", l.Place))
		}
		b.WriteString("→ " + x.Advice + "\n```\n")
		text := strings.NewReplacer(r.dir+"/", "config/", "revision 1)", "revision 412)", "bufconn", "10.1.2.3:51234", "nonce 2", "nonce 41").Replace(b.String())
		text = regexp.MustCompile(`version [0-9a-f]{16}`).ReplaceAllString(text, "version 77b0e911aabbccdd")
		if !strings.Contains(string(page), text) {
			t.Errorf("the page does not show\n%s", text)
		}
		for _, place := range regexp.MustCompile(`config/edge/listeners\.yaml:11:\d+`).FindAllString(string(page), -1) {
			if at := strings.Replace(x.Links[len(x.Links)-1].Place, r.dir+"/", "config/", 1); place != at {
				t.Errorf("the page shows %s, want %s", place, at)
			}
		}
		for _, l := range x.Links {
			if !strings.Contains(string(page), "\n| "+l.Name+" | ") {
				t.Errorf("no row explains the link %q", l.Name)
			}
		}
	})
}
