package file

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/chancery-xds/chancery/revisions"
	"github.com/chancery-xds/chancery/revisions/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEngine(t *testing.T) {
	enginetest.Test(t, func(t *testing.T) func(*testing.T) revisions.Engine {
		dir := t.TempDir()
		return func(t *testing.T) revisions.Engine {
			e, err := Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
}

func TestFloors(t *testing.T) {
	dir := t.TempDir()
	enginetest.Floors(t, 10_000, func(t *testing.T) revisions.Engine {
		e, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	})
}
