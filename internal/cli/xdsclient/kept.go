package xdsclient

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// BodyCheck returns what says that a resource of a type that xDS knows is no such message, or calls itself
// otherwise than what is around it: a client that gets it without that would know it by the wrong name,
// and could get two of one name. Others are passed on as they are.
func BodyCheck(types *envoy.Types) func(*xds.Resource) error {
	return func(r *xds.Resource) error {
		if !r.Type.Known() {
			return nil
		}
		m, err := Unmarshal(types, r)
		if err != nil || r.Type.Name == "" {
			return err
		}
		own := m.ProtoReflect()
		name := own.Get(own.Descriptor().Fields().ByName(protoreflect.Name(r.Type.Name))).String()
		if name != "" && xds.CanonicalName(name) != r.Name {
			return fmt.Errorf("resource %q is called %q in its body", r.Name, name)
		}
		return nil
	}
}

// StateDirHint is what to do if the state directory cannot be used.
const StateDirHint = "--state-dir chooses another directory; an empty one stores nothing"

// NewKeptClient is a client that keeps the last good of what is called so in a folder of root; "": nowhere. If it
// cannot, and nobody has chosen root, it keeps none, and warns.
func NewKeptClient(cfg client.Config, root string, chosen bool, of string, warn func(error)) (*client.Client, error) {
	if root == "" {
		return client.New(cfg)
	}
	var err error
	if cfg.Dir, err = lastgood.Folder(root, of); err != nil {
		return nil, err
	}
	c, err := client.New(cfg)
	if err != nil && !chosen {
		warn(err)
		cfg.Dir = ""
		c, err = client.New(cfg)
	}
	return c, err
}
