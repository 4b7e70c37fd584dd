package groups

import (
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/xds"
)

// A Node is what rules are asked about. Its strings are the client's, and may be anything.
// It is good until the rule returns.
type Node struct {
	ID               string
	Cluster          string
	Region           string
	Zone             string
	SubZone          string
	UserAgentName    string
	UserAgentVersion string

	bytes    []byte // of the metadata, until somebody asks
	metadata map[string]any
	decoded  bool
	problem  string // why the metadata could not be read
}

func (n *Node) set(from *xds.Node) {
	*n = Node{}
	if from != nil {
		*n = Node{
			ID: from.ID, Cluster: from.Cluster, Region: from.Region, Zone: from.Zone, SubZone: from.SubZone,
			UserAgentName: from.UserAgentName, UserAgentVersion: from.UserAgentVersion, bytes: from.Metadata,
		}
	}
}

// Metadata returns the metadata: nil, bool, float64, string, []any and map[string]any. It
// is decoded once, is nil if it cannot be read, and must not be changed.
func (n *Node) Metadata() map[string]any {
	if !n.decoded {
		n.decoded = true
		var err error
		if n.metadata, err = nodemeta.Decode(n.bytes); err != nil {
			n.metadata, n.problem = nil, "the node's metadata is left out: "+err.Error()
		}
	}
	return n.metadata
}
