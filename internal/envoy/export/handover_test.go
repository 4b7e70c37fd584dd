package export

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// piecesAt makes pieces from "name:port", with a version after a slash.
func piecesAt(all string) (pieces []*piece) {
	for s := range strings.FieldsSeq(all) {
		name, port, _ := strings.Cut(s, ":")
		number, _, _ := strings.Cut(port, "/")
		pieces = append(pieces, &piece{name: name, data: []byte(port), addresses: &[]xds.Address{{Port: number}}})
	}
	return pieces
}

func TestHandOver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, was, next, want string }{
		{"HEAL-4 FILE-5 a new listener takes the port of another", "web:1", "api:1 web:2", "web:2 api:1"},
		{"HEAL-4 FILE-5 the order stays without a change", "web:2 api:1", "api:1 web:2", "web:2 api:1"},
		{"HEAL-4 FILE-5 a later change needs no order", "web:2 api:1", "api:1/2 web:2", "api:1/2 web:2"},
		{"HEAL-4 FILE-5 a removed listener", "web:1", "api:1 b:2", "api:1 b:2"},
		{"HEAL-4 FILE-5 an exchange has no order", "api:1 web:2", "api:2 web:1", "web:1 api:2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, p := range handOver(piecesAt(tc.was), piecesAt(tc.next)) {
				got = append(got, fmt.Sprintf("%s:%s", p.name, p.data))
			}
			if is := strings.Join(got, " "); is != tc.want {
				t.Errorf("%s, not %s", is, tc.want)
			}
		})
	}
}
