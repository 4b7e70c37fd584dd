package store

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/xds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// res returns a sealed resource.
func res(name, body string, aliases ...string) *xds.Resource {
	r := &xds.Resource{Stamp: &xds.Stamp{Name: name}, Body: []byte(body), Aliases: aliases}
	r.Seal("")
	return r
}

// update commits and fails the test on an error.
func update(t testing.TB, st *Store, f func(tx *Tx)) Commit {
	t.Helper()
	c, err := st.Update(func(tx *Tx) error { f(tx); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// unlisted returns a type that the table of types does not list: a new row each time.
func unlisted() *xds.Type { return xds.TypeOf("type.googleapis.com/example.Unlisted") }

// of sets the type of resources that have none.
func of(t *xds.Type, rs ...*xds.Resource) []*xds.Resource {
	for _, r := range rs {
		if r != nil && r.Type == nil {
			r.Type = t
		}
	}
	return rs
}
