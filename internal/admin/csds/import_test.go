package csds

import (
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
)

// The importer reads a config_dump of the server like a config_dump of an Envoy. It imports the resources
// that the client has or should have, but no refused versions.
func TestImporterReadsDump(t *testing.T) {
	w := get(service(edge(t, "one")).ConfigDump(), "/config_dump?include_eds")
	done, problems := importer.Do([]importer.File{{Name: "dump.json", Data: w.Body.Bytes()}}, importer.Options{Types: envoy.Envoy(), WithoutRedacted: true})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var got []string
	for _, r := range done.Resources {
		got = append(got, r.Type.Short+"/"+r.Name)
	}
	slices.Sort(got)
	if want := "CDS/backend ECDS/filter LDS/http LDS/late RDS/main SRDS/scope"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	if notes := strings.Join(done.Notes, "\n"); !strings.Contains(notes, "has no bootstrap") || !strings.Contains(notes, `secret "cert" is left out`) {
		t.Error(notes)
	}
}
