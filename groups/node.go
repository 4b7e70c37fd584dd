package groups

import (
	"github.com/chancery-xds/chancery/internal/envoy/nodemeta"
	"github.com/chancery-xds/chancery/xds"
)

// A Node is the node that a rule is evaluated for. Its strings come from the client and may be
// anything. It is valid until the rule returns.
type Node struct {
	ID               string
	Cluster          string
	Region           string
	Zone             string
	SubZone          string
	UserAgentName    string
	UserAgentVersion string

	encoded  []byte // encoded metadata, decoded on demand
	metadata map[string]any
	decoded  bool
	problem  string // why the metadata cannot be read
}

func (n *Node) set(from *xds.Node) {
	if from == nil {
		from = &xds.Node{}
	}
	*n = Node{
		ID: from.ID, Cluster: from.Cluster, Region: from.Region, Zone: from.Zone, SubZone: from.SubZone,
		UserAgentName: from.UserAgentName, UserAgentVersion: from.UserAgentVersion, encoded: from.Metadata,
	}
}

// Metadata returns the metadata as nil, bool, float64, string, []any and map[string]any. It is decoded
// once. It is nil if it cannot be read. It must not be changed.
func (n *Node) Metadata() map[string]any {
	if !n.decoded {
		n.decoded = true
		var err error
		n.metadata, err = nodemeta.Decode(n.encoded)
		if err != nil {
			n.metadata, n.problem = nil, "the node's metadata is left out: "+err.Error()
		}
	}
	return n.metadata
}
