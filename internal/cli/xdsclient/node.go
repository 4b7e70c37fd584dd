package xdsclient

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/nodes"
	"github.com/chancery-xds/chancery/xds"
)

// NodeFlags are the flags that describe a node.
type NodeFlags struct{ ID, Cluster, JSON string }

// Register adds the flags of the node.
func (n *NodeFlags) Register(f *pflag.FlagSet) {
	f.StringVar(&n.ID, "node", "", "`ID` of the node")
	f.StringVar(&n.Cluster, "cluster", "", "`NAME` of the node's cluster")
	f.StringVar(&n.JSON, "node-json", "", "the node as `JSON` or YAML: id, cluster, locality, metadata, user_agent_name, …; @FILE reads it from a file, - from stdin")
}

// Given reports whether at least one of the flags is set.
func (n *NodeFlags) Given() bool { return n.ID != "" || n.Cluster != "" || n.JSON != "" }

// Check returns an error of usage if the flags contradict each other.
func (n *NodeFlags) Check() error {
	if n.JSON != "" && (n.ID != "" || n.Cluster != "") {
		return errors.New("--node-json is the whole node: put id and cluster into it, instead of --node and --cluster")
	}
	return nil
}

// Node returns the node that the flags describe. An invalid node is an error of usage.
func (n *NodeFlags) Node(stdin io.Reader, types *envoy.Types) (*xds.Node, error) {
	if n.JSON == "" {
		return &xds.Node{ID: n.ID, Cluster: n.Cluster}, nil
	}
	src := []byte(n.JSON)
	var err error
	if path, is := strings.CutPrefix(n.JSON, "@"); is {
		src, err = os.ReadFile(path)
	} else if n.JSON == "-" {
		src, err = io.ReadAll(stdin)
	}
	if err != nil {
		return nil, cli.Fail(fmt.Errorf("--node-json: %w", err), "")
	}
	node, err := nodes.Read(src, types)
	if err != nil {
		return nil, fmt.Errorf("--node-json: %w", err)
	}
	return node, nil
}
