package daemon

import (
	"testing"

	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

func TestReviewAddsEmptyAssignments(t *testing.T) {
	t.Run("ADS-8 no empty assignment for a cluster with unknown assignments", func(t *testing.T) {
		c := xds.NewResource(xds.Cluster, "c", nil)
		c.Refs = []xds.Ref{{Type: xds.Endpoint, Name: xds.Wildcard}}
		r := &loadReview{emptyAssignments: true}
		if more, err := r.load([]dir.Loaded{{Resource: c}}); err != nil || len(more) != 0 {
			t.Error(more, err)
		}
	})
	t.Run("WARM-2 an empty assignment has no references, and replaces no alias", func(t *testing.T) {
		c, a := xds.NewResource(xds.Cluster, "c", nil), xds.NewResource(xds.Endpoint, "a", nil)
		c.Refs = []xds.Ref{{Type: xds.Endpoint, Name: "alias"}, {Type: xds.Endpoint, Name: "none"}, {Type: xds.Endpoint, Name: "none"}}
		a.Aliases = []string{"alias"}
		r := &loadReview{emptyAssignments: true}
		more, err := r.load([]dir.Loaded{{Resource: c}, {Resource: a}})
		if err != nil || len(more) != 1 || more[0].Name != "none" || more[0].Refs == nil || len(more[0].Refs) != 0 {
			t.Errorf("%+v, %v", more, err)
		}
	})
}
