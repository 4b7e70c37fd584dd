package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// A nodeFlags says which node somebody asks about.
type nodeFlags struct{ id, cluster, json string }

func (n *nodeFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&n.id, "node", "", "`ID` of the node")
	f.StringVar(&n.cluster, "cluster", "", "`NAME` of the node's cluster")
	f.StringVar(&n.json, "node-json", "", "the node as `JSON` or YAML: id, cluster, locality, metadata, user_agent_name, …; @FILE reads it from a file, - from stdin")
}

// given reports whether they say anything.
func (n *nodeFlags) given() bool { return n.id != "" || n.cluster != "" || n.json != "" }

func (n *nodeFlags) check() error {
	if n.json != "" && (n.id != "" || n.cluster != "") {
		return errors.New("--node-json is the whole node: give id and cluster in it, not by --node and --cluster")
	}
	return nil
}

// node returns the node. An error in it is one of usage.
func (n *nodeFlags) node(stdin io.Reader, types *envoy.Types) (*xds.Node, error) {
	if n.json == "" {
		return &xds.Node{ID: n.id, Cluster: n.cluster}, nil
	}
	src := []byte(n.json)
	var err error
	if path, is := strings.CutPrefix(n.json, "@"); is {
		src, err = os.ReadFile(path)
	} else if n.json == "-" {
		src, err = io.ReadAll(stdin)
	}
	if err != nil {
		return nil, fail(fmt.Errorf("--node-json: %w", err), "")
	}
	node, err := readNode(src, types)
	if err != nil {
		return nil, fmt.Errorf("--node-json: %w", err)
	}
	return node, nil
}
