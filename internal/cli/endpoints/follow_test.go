package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/endpoints/dns"
)

// A list of names may begin with a byte order mark, as editors write it.
func TestFollowedNamesAfterAByteOrderMark(t *testing.T) {
	names := map[dns.Name][]string{}
	if err := readFollowed(strings.NewReader("\ufeffbackend dns:svc.example:80\r\nother dns:svc2.example:81\r\n"), "-", names); err != nil {
		t.Fatal(err)
	}
	var clusters []string
	for name, of := range names {
		clusters = append(clusters, fmt.Sprintf("%q %s", of, name.Host))
	}
	slices.Sort(clusters)
	if got := strings.Join(clusters, ", "); got != `["backend"] svc.example, ["other"] svc2.example` {
		t.Error(got)
	}
}
