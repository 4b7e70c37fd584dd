package delay

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Each reason has a requirement that exists, a text, and a limit that the option Grace does not make endless.
func TestReasonsAreComplete(t *testing.T) {
	requirements, err := os.ReadFile("../../../docs/requirements.md")
	if err != nil {
		t.Fatal(err)
	}
	for r := Unsent; int(r) < Count; r++ {
		if id := r.ID(); id == "" || !strings.Contains(string(requirements), "\n- "+id+" ") {
			t.Errorf("reason %d: docs/requirements.md does not have %q", r, id)
		}
		if r.String() == "" {
			t.Errorf("reason %d has no text", r)
		}
		if limit := r.Limit(time.Second); limit < 0 || limit > 0 && limit < time.Second {
			t.Errorf("reason %d: the limit is %v", r, limit)
		}
	}
	if none := Reason(0); none.String() != "" || none.Limit(time.Second) != 0 {
		t.Error("the zero value is a reason")
	}
}
