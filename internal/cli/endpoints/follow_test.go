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
	bad, err := readFollowed(strings.NewReader("\ufeffbackend dns:svc.example:80\r\nother dns:svc2.example:81\r\n"), "-", names)
	if err != nil || len(bad) > 0 {
		t.Fatal(bad, err)
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

// A bad line of a list of names does not spoil the others, and its number is known.
func TestBadLineDoesNotSpoilTheList(t *testing.T) {
	for _, line := range []string{"backend", "backend dns:svc.example:0", "backend dns:10.0.0.1:80", "backend http://x", "a b c", "\xff\xfe dns:x y"} {
		names := map[dns.Name][]string{}
		bad, err := readFollowed(strings.NewReader("a dns:a.example:80\n# a comment\n"+line+"\nb srv:_http._tcp.example\n"), "-", names)
		if err != nil || len(names) != 2 || len(bad) != 1 || bad[0].number != 3 || bad[0].err == nil {
			t.Errorf("%q: %v, %v, %v", line, names, bad, err)
		}
		_, err = readFollowed(strings.NewReader("\n"+line+"\n"), "-", map[dns.Name][]string{})
		if err == nil || !strings.Contains(err.Error(), "-:2: ") {
			t.Errorf("%q alone: %v", line, err)
		}
	}
}
