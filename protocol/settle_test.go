package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chancery-xds/chancery/xds"
)

// SOTW-3: whatever is answered late, or twice, changes what it is about and
// nothing else.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		answers string // of three responses; "!" refuses
		want    string // what is listed then; "x" is superseded
	}{
		{"", "1 2 3"},
		{"1", "2 3"},
		{"2", "1x 3"},
		{"3", "1x 2x"},
		{"3 1", "2x"},
		{"2!", "1 3"}, // a refused one has replaced nothing
		{"3!", "1 2"},
		{"2 2 2", "1x 3"},
		{"1 2 3", ""},
		{"9", "1 2 3"},
		{"bad", "1 2 3"},
	} {
		u := &subscription{typ: xds.Route}
		s := &Session{variant: xds.Delta, now: time.Unix(1, 0), view: xds.Tables{}}
		for n := range uint64(3) {
			u.deliver(s, &delivery{parts: []part{{nonce: n + 1, lo: "a", hi: "z"}}, cargo: cargo{items: itemsOf("a:->a1")}})
		}
		for a := range strings.FieldsSeq(c.answers) {
			nonce, no := strings.CutSuffix(a, "!")
			req := xds.Request{Nonce: nonce}
			if no {
				req.Error = &xds.Status{}
			}
			u.settle(s, req)
		}
		var out []string
		for _, d := range u.deliveries {
			n := fmt.Sprint(d.last())
			if d.superseded {
				n += "x"
			}
			out = append(out, n)
		}
		if got := strings.Join(out, " "); got != c.want {
			t.Errorf("%q: %q, not %q", c.answers, got, c.want)
		}
		newest := !strings.Contains(c.answers, "3")
		if u.unacked != newest {
			t.Errorf("%q: unacked %v", c.answers, u.unacked)
		}
	}
}
