package main

import (
	"fmt"
	"log/slog"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"github.com/chancery-xds/chancery/internal/source/dir"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A review looks at what is loaded before it is served.
type review struct {
	log     *slog.Logger
	exposed exposure // of secrets; none if it is allowed
	empty   bool     // answer assignments that are missing with empty ones

	told map[string]bool // assignments whose absence was told
}

func (r *review) load(all []dir.Loaded) ([]dir.Loaded, error) {
	if err := r.exposed.refuse(all); err != nil {
		return nil, err
	}
	return r.assignments(all)
}

// assignments finds the clusters whose endpoints are to come from here and do
// not. Envoy waits 15 s for them before it uses such a cluster, at each start.
func (r *review) assignments(all []dir.Loaded) ([]dir.Loaded, error) {
	have := map[string]bool{}
	for _, l := range all {
		if l.Type.Is(xds.Endpoint) {
			have[l.Name] = true
			for _, alias := range l.Aliases {
				have[alias] = true
			}
		}
	}
	told, n := map[string]bool{}, 0
	var more []dir.Loaded
	for _, l := range all {
		if !l.Type.Is(xds.Cluster) {
			continue
		}
		for _, ref := range l.Refs {
			if !ref.Type.Is(xds.Endpoint) || ref.Name == xds.Wildcard || have[ref.Name] {
				continue
			}
			if r.empty {
				have[ref.Name] = true
				a, err := wire.NewResource(xds.Endpoint, "", &endpointv3.ClusterLoadAssignment{ClusterName: ref.Name})
				if err != nil {
					return nil, fmt.Errorf("%v: %w", l.Pos, err)
				}
				a.Refs = []xds.Ref{}
				more = append(more, dir.Loaded{Resource: a, Type: xds.Endpoint, Pos: l.Pos})
				continue
			}
			if told[ref.Name] = true; !r.told[ref.Name] {
				if n++; n <= most {
					r.log.Warn("a cluster has no endpoints: its ClusterLoadAssignment is missing", "cluster", l.Name, "assignment", ref.Name, "at", l.Pos.String())
				}
			}
		}
	}
	if n > most {
		r.log.Warn("and more clusters without endpoints", "clusters", n-most)
	}
	r.told = told
	return more, nil
}

// most is how many lines of the log a load may have of one kind.
const most = 20
