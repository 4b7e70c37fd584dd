package protoyaml

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// An excerpt shows only the mistake.
func TestExcerpts(t *testing.T) {
	const cluster = "\"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster\n"
	for _, tt := range []struct{ name, src, want string }{
		{"SAFE-6 a key", cluster + "nam: hunter2", "    2 | nam: …\n        ^"},
		{"SAFE-6 a value", cluster + "  \nconnect_timeout: 5x # soon", "    3 | connect_timeout: 5x\n                         ^"},
		{"SAFE-6 a value in quotes", cluster + "connect_timeout: '5x'", "    2 | connect_timeout: '5x'\n                         ^"},
		{"SAFE-6 between others", "{" + strings.TrimSpace(cluster) + ", name: hunter2, connect_timeout: 5x, alt_stat_name: hunter2}", "    1 | … connect_timeout: 5x …\n                           ^"},
		{"SAFE-6 a key between others", "{" + strings.TrimSpace(cluster) + ", name: hunter2, nam: hunter2}", "    1 | … nam: …\n          ^"},
		{"SAFE-6 after tabs and wide text", "{" + strings.TrimSpace(cluster) + ", name: \"世界\",\t\"type\": \"世\"}", "    1 | … \"type\": \"世\" …\n                  ^"},
		{"SAFE-6 a list", cluster + "name: [hunter2]", "    2 | name: […]\n              ^"},
		{"SAFE-6 a mapping", cluster + "name: {hunter2: x}", "    2 | name: {…}\n              ^"},
		{"SAFE-6 text of several lines", cluster + "connect_timeout: |\n  hunter2", "    2 | connect_timeout: …\n                         ^"},
		{"SAFE-6 a message", cluster + "load_assignment: hunter2", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, d := decode(t, "c.yaml", tt.src)
			if len(d.Problems) != 1 {
				t.Fatal(d.Problems)
			}
			_, got, _ := strings.Cut(d.Problems[0].Text(), "\n")
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// Lines are found in any order.
func TestLinesInAnyOrder(t *testing.T) {
	for _, src := range []string{"", "\n", "a", "a\n", "a\n\nb\n\n", "a\nb\nc\nd"} {
		d, lines := &Decoder{Source: []byte(src)}, strings.Split(src, "\n")
		for range 200 {
			n := rand.IntN(len(lines)+2) + 1
			want := ""
			if n <= len(lines) {
				want = lines[n-1]
			}
			if got := string(d.line(n)); got != want {
				t.Fatalf("line %d of %q is %q, not %q", n, src, got, want)
			}
		}
	}
}
