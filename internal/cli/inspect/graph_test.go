package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/testkit/canned"
)

// A graph with a cycle, requested by an alias, is printed once.
func TestGraphWithCycle(t *testing.T) {
	d, err := adminclient.Dial(adminclient.Target{URL: canned.Circle(t)})
	if err != nil {
		t.Fatal(err)
	}
	all, err := graphFrom(context.Background(), d, "RDS", "a", "")
	if err != nil || len(all) != 2 || all[1].Missing {
		t.Fatal(all, err)
	}
	var out bytes.Buffer
	printTree(&out, all[0], "", "")
	if want := "RDS a\n└─ RDS b\n   └─ RDS a  (see above)\n"; out.String() != want {
		t.Errorf("got\n%s", &out)
	}
	if b, err := json.Marshal(all); err != nil {
		t.Error(string(b), err)
	}
}
