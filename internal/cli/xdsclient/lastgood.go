package xdsclient

import (
	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// BodyCheck returns a function that checks the body of a resource. The function returns an error if
// the decoded body takes more than half of the memory of all resources, or is not a message of the
// resource's type. The body of a type that the package xds does not know need not be a message.
func BodyCheck(types *envoy.Types, all xds.MemoryLimit) func(*xds.Resource) error {
	fits := MemoryCheck(types, xds.MemoryLimit{Bytes: all.Bytes / 2, Hint: all.Hint})
	return func(r *xds.Resource) error {
		if err := fits(r); err != nil || !r.Type.Known() {
			return err
		}
		_, err := Unmarshal(types, r)
		return err
	}
}

// StateDirHint is the hint for an unusable state directory.
const StateDirHint = "--state-dir chooses another directory; an empty one stores nothing"

// NewClientWithLastGood returns a client that stores the last good resources in a folder of root; the
// folder belongs to the path `of`, with a description for "chancery state". If root is "", the client stores nothing. If the user did not
// choose root and it is unusable, NewClientWithLastGood calls warn, and the client stores nothing.
func NewClientWithLastGood(cfg client.Config, root string, chosen bool, of, description string, warn func(error)) (*client.Client, error) {
	if root == "" {
		return client.New(cfg)
	}
	var err error
	cfg.Dir, err = lastgood.Folder(root, of)
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg)
	if err != nil && !chosen {
		warn(err)
		cfg.Dir = ""
		c, err = client.New(cfg)
	}
	if err == nil && cfg.Dir != "" {
		_ = lastgood.Label(cfg.Dir, of, description) // only "chancery state" needs it
	}
	return c, err
}
