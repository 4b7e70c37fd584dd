package xdsclient

import (
	"os"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/xds"
)

// The errors of a malformed response are printed once, and not after each poll.
func TestMalformedIsReportedOnce(t *testing.T) {
	told := map[string]string{}
	tell := func(bad ...error) bool {
		m := &Message{Kind: "response", Type: "CDS", Names: []string{"a"}}
		return m.Malformed(&xds.Response{Malformed: bad}, told)
	}
	broken := &xds.MalformedError{Name: "b", Err: os.ErrInvalid}
	for i, tt := range []struct {
		bad  []error
		want bool
	}{{nil, false}, {[]error{broken}, true}, {[]error{broken}, false}, {[]error{broken, broken}, true}, {nil, false}, {[]error{broken}, true}} {
		if got := tell(tt.bad...); got != tt.want {
			t.Errorf("case %d: printed %v, want %v", i, got, tt.want)
		}
	}
	m := &Message{Kind: "response", Type: "CDS"}
	if m.Malformed(nil, told) || !m.Malformed(&xds.Response{Malformed: []error{broken, broken}}, told) || m.Kind != "malformed" || !strings.Contains(m.Error, os.ErrInvalid.Error()) {
		t.Errorf("%+v", m)
	}
}
