package daemon

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// A loadReview checks and completes loaded resources before they are served.
type loadReview struct {
	exposed          dirload.Exposure // how listeners would expose secrets; the zero value: they do not, or the flags allow it
	emptyAssignments bool             // add empty assignments in place of missing ones
}

func (r *loadReview) load(all []dir.Loaded) ([]dir.Loaded, error) {
	if err := r.exposed.Refuse(all); err != nil {
		return nil, err
	}
	return r.assignments(all)
}

// assignments returns empty assignments for EDS clusters without endpoints, if the flag requests
// them. Without an assignment, Envoy waits 15 s at each start before it uses such a cluster.
func (r *loadReview) assignments(all []dir.Loaded) ([]dir.Loaded, error) {
	if !r.emptyAssignments {
		return nil, nil
	}
	have := map[string]bool{}
	for _, l := range all {
		if l.Type.Is(xds.Endpoint) {
			have[l.Name] = true
			for _, alias := range l.Aliases {
				have[alias] = true
			}
		}
	}
	var more []dir.Loaded
	for _, l := range all {
		if !l.Type.Is(xds.Cluster) {
			continue
		}
		for _, ref := range l.Refs {
			if !ref.Type.Is(xds.Endpoint) || ref.Name == xds.Wildcard || have[ref.Name] {
				continue
			}
			have[ref.Name] = true
			m := envoy.Envoy().New("envoy.config.endpoint.v3.ClusterLoadAssignment")
			m.Set(m.Descriptor().Fields().ByName("cluster_name"), protoreflect.ValueOfString(ref.Name))
			a, err := wire.NewResource(xds.Endpoint, "", m.Interface())
			if err != nil {
				return nil, fmt.Errorf("%v: %w", l.Pos, err)
			}
			a.Refs = []xds.Ref{}
			more = append(more, l.With(a))
		}
	}
	return more, nil
}
