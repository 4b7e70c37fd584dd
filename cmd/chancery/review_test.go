package main

import (
	"testing"

	"github.com/chancery-xds/chancery/internal/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

func TestReview(t *testing.T) {
	t.Run("ADS-8 which assignments a cluster has is not known: none is made up", func(t *testing.T) {
		c := xds.NewResource("c", nil)
		c.Refs = []xds.Ref{{Type: xds.Endpoint, Name: xds.Wildcard}}
		r := &review{empty: true}
		if more, err := r.load([]dir.Loaded{{Resource: c, Type: xds.Cluster}}); err != nil || len(more) != 0 {
			t.Error(more, err)
		}
	})
}
