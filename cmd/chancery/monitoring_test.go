package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/chancery-xds/chancery/internal/testkit/tlstest"
)

// The alert rules and the dashboard use metrics and labels that the program has.
func TestMonitoringFiles(t *testing.T) {
	t.Parallel()
	metrics := everyMetric(t)

	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	file, err := os.Open("../../deploy/prometheus/chancery-alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := yaml.NewDecoder(file)
	d.KnownFields(true)
	if err := d.Decode(&rules); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: for: %v", r.Alert, err)
			}
			if r.Alert == "" || seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || g.Name == "" {
				t.Errorf("%q: a name of its own, a severity and a summary are needed", r.Alert)
			}
			seen[r.Alert] = true
			if !bytes.Contains(page, []byte("| `"+r.Alert+"` |")) {
				t.Errorf("%s is not in the table of docs/alerts.md", r.Alert)
			}
			labels := queryable(t, r.Alert, r.Expr, metrics)
			for _, text := range r.Annotations {
				for _, m := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(text, -1) {
					if !labels[m[1]] {
						t.Errorf("%s: no label %q in its text", r.Alert, m[1])
					}
				}
			}
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllSubmatch(page, -1) {
		if !seen[string(m[1])] {
			t.Errorf("docs/alerts.md: there is no rule %s", m[1])
		}
	}

	var dashboard struct {
		UID, Title string
		Panels     []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	b, err := os.ReadFile("../../deploy/grafana/chancery.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &dashboard); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	queries := 0
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: needs its own id, a title, a query (unless a row), and an end at column 24 or before", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			queries++
			labels := queryable(t, p.Title, strings.ReplaceAll(q.Expr, "$__rate_interval", "5m"), metrics)
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
				if !labels[m[1]] {
					t.Errorf("%s: no label %q in its legend", p.Title, m[1])
				}
			}
		}
	}
	if len(seen) < 10 || queries < 15 {
		t.Errorf("%d rules and %d queries", len(seen), queries)
	}
}

// everyMetric returns the metrics of a server after all events that create series, with their labels.
func everyMetric(t *testing.T) map[string]map[string]bool {
	t.Helper()
	dir := t.TempDir()
	pair := tlstest.NewAuthority(t, "ca").Issue("server", "127.0.0.1")
	write(t, dir, "crt", string(pair.Cert), "key", string(pair.Key))
	indent := func(b []byte) string { return strings.ReplaceAll("\n"+strings.TrimSpace(string(b)), "\n", "\n      ") }
	d := serve(t, []string{"--listen", "127.0.0.1:0", "--listen", "unix://" + filepath.Join(dir, "s"), "--tls-cert", filepath.Join(dir, "crt"), "--tls-key", filepath.Join(dir, "key"), "--insecure-secrets", "--metrics-listen", "127.0.0.1:0"},
		"a.yaml", cluster("a"), "s.yaml", `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
name: s
tls_certificate:
  certificate_chain:
    inline_string: |`+indent(pair.Cert)+`
  private_key:
    inline_string: |`+indent(pair.Key)+"\n")
	d.dial("unix://"+filepath.Join(dir, "s"), insecure.NewCredentials())
	s := d.clusters()
	r, err := s.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	s.send(&discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce(), ErrorDetail: &status.Status{Message: "no"}})
	d.logged("client refused a response (NACK)")

	found := map[string]map[string]bool{}
	for line := range strings.Lines(d.metrics()) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, labels, _ := strings.Cut(strings.TrimSpace(line), "{")
		name, _, _ = strings.Cut(name, " ")
		if found[name] == nil {
			found[name] = map[string]bool{}
		}
		for _, m := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(labels, -1) {
			found[name][m[1]] = true
		}
	}
	found["up"] = map[string]bool{} // Prometheus' own
	return found
}

var promQL = struct {
	tokens               *regexp.Regexp
	functions, operators []string
}{
	regexp.MustCompile(`"(?:[^"\\]|\\.)*"|[a-zA-Z_:][a-zA-Z0-9_:]*|\[\d+[smhd]\]|\d+(?:\.\d+)?(?:e\d+)?|[-+*/(){},]|=~|!~|!=|==|<=|>=|[=<>]|\s+|\S`),
	[]string{"sum", "min", "max", "count", "count_values", "rate", "increase", "time", "vector", "histogram_quantile"},
	[]string{"by", "or", "and", "unless"},
}

// queryable checks that a query is valid PromQL and uses existing metrics and labels. It returns the
// labels.
func queryable(t *testing.T, what, query string, metrics map[string]map[string]bool) map[string]bool {
	t.Helper()
	labels := map[string]bool{"job": true, "instance": true} // of the scrape
	var words, open []string
	for _, token := range promQL.tokens.FindAllString(query, -1) {
		if strings.TrimSpace(token) != "" {
			words = append(words, token)
		}
	}
	var named []string
	asked := 0
	for i, w := range words {
		last, next := "", ""
		if i > 0 {
			last = words[i-1]
		}
		if i+1 < len(words) {
			next = words[i+1]
		}
		inside := ""
		if len(open) > 0 {
			inside = open[len(open)-1]
		}
		switch {
		case w == "(" && slices.Contains(promQL.operators[:1], last):
			open = append(open, "by")
		case w == "(" || w == "{":
			open = append(open, w)
		case w == ")" && (inside == "(" || inside == "by"), w == "}" && inside == "{":
			open = open[:len(open)-1]
		case w == ")" || w == "}":
			t.Errorf("%s: %q closes nothing in %s", what, w, query)
			return labels
		case regexp.MustCompile(`^[a-zA-Z_:]`).MatchString(w):
			switch {
			case inside == "by", inside == "{":
				if w != "__name__" {
					named = append(named, w)
					break
				}
				for name := range strings.SplitSeq(strings.Trim(words[i+2], `"`), "|") {
					asked++
					if metrics[name] == nil {
						t.Errorf("%s: no metric %s", what, name)
					}
				}
			case (next == "(" || next == "by") && slices.Contains(promQL.functions, w), slices.Contains(promQL.operators, w):
			case metrics[w] != nil:
				asked++
				maps.Copy(labels, metrics[w])
			default:
				t.Errorf("%s: %q is no metric and no function", what, w)
			}
		case len(w) == 1 && !strings.Contains("-+*/,=<>0123456789", w):
			t.Errorf("%s: %q is not a PromQL token in %s", what, w, query)
		}
	}
	for _, l := range named {
		if !labels[l] {
			t.Errorf("%s: no label %q in %s", what, l, query)
		}
	}
	if len(open) > 0 || asked == 0 {
		t.Errorf("%s: %d brackets are not closed, and the query uses %d metrics (at least 1): %s", what, len(open), asked, query)
	}
	return labels
}
