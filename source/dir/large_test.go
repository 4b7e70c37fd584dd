package dir

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/findings"
	"github.com/chancery-xds/chancery/store"
)

// sized returns clusters of about the given number of bytes each.
func sized(bytes int, names ...string) string {
	var b strings.Builder
	for _, name := range names {
		fmt.Fprintf(&b, "---\n{%s, name: %s, alt_stat_name: %s}\n", clusterURL, name, strings.Repeat("x", bytes))
	}
	return b.String()
}

func TestForecastOfLargeResponses(t *testing.T) {
	const mib = 1 << 20
	large := func(root string, all []findings.Problem) string {
		var b strings.Builder
		for _, p := range all {
			if p.Code == findings.LargeResponse {
				b.WriteString(strings.ReplaceAll(p.Error(), root+"/", "") + "\n")
			}
		}
		return b.String()
	}
	const groupX, groupY = "match: {cluster: x}\ninclude: [default]\n", "match: {cluster: y}\ninclude: [x]\n"
	for name, tt := range map[string]struct {
		files []string
		want  []string // parts of the lines
	}{
		"SAFE-4 below the limit": {[]string{"a.yaml", sized(2*mib-1000, "a", "b")}, nil},
		"SAFE-4 above the limit, at the place of the largest cluster": {[]string{"a.yaml", sized(2*mib, "a") + sized(3*mib, "b") + sized(mib, "c")},
			[]string{`a.yaml:4:1: warning: a state-of-the-world response with all 3 CDS has about 6.0 MiB, and "b" is the largest: gRPC clients accept at most 4.0 MiB by default (Envoy has no such limit; `}},
		"SAFE-4 a wildcard does not get clusters on demand": {[]string{"a.yaml", sized(2*mib, "a") + strings.Replace(sized(3*mib, "b"), "{", "{x-chancery: {on_demand: true}, ", 1)}, nil},
		"SAFE-4 other types can be split":                   {[]string{"e.yaml", strings.ReplaceAll(endpointsE, `"e"`, `"`+strings.Repeat("e", 5*mib)+`"`)}, nil},
		"SAFE-4 a group with the groups that it includes, once": {[]string{"a.yaml", sized(3*mib, "a"), "x/group.yaml", groupX, "x/x.yaml", sized(2*mib, "x"), "y/group.yaml", groupY, "y/y.yaml", sized(10, "y")},
			[]string{"a.yaml:2:1: warning: group x: a state-of-the-world response with all 2 CDS has about 5.0 MiB"}},
		"SAFE-4 a cluster of the same name counts once": {[]string{"a.yaml", sized(3*mib, "a"), "x/group.yaml", groupX, "x/x.yaml", sized(3*mib, "a")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newFixture(t, tt.files...)
			got := large(b.dir, Check(b.dir, Options{}).Warnings)
			if strings.Count(got, "\n") != len(tt.want) {
				t.Errorf("got %q", got)
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}
			// A load warns as a check does, and does not count the warning as a missing reference.
			src := New(b.dir, store.New(), Options{References: true, Log: slog.New(slog.DiscardHandler)})
			report, err := src.Load()
			if err != nil {
				t.Fatal(err)
			}
			if loaded := large(b.dir, report.Warnings); loaded != got || src.Summary().Dangling != 0 {
				t.Errorf("check warns of %q, a load of %q; %d missing", got, loaded, src.Summary().Dangling)
			}
		})
	}
}
