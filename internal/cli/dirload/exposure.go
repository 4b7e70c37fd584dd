package dirload

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// An Exposure describes how secrets would reach clients without authorization (Way), and how to prevent
// that (Remedy). The zero value means that no secrets are exposed.
type Exposure struct{ Way, Remedy string }

// RefuseAny returns an error if a resource contains a secret that would be exposed. The resource need
// not come from a file.
func (e Exposure) RefuseAny(secrets *internalsecret.Finder, r *xds.Resource, m proto.Message) error {
	if found := secrets.Find(m); len(found.Values) > 0 {
		return fmt.Errorf("the secret in %s of %s %q would be sent %s: give %s, listen on this machine only, or allow it with --insecure-secrets",
			found.Values[0], r.Type, r.Name, e.Way, e.Remedy)
	}
	return nil
}

// Refuse returns an error if one of the loaded resources has a secret that would be exposed.
func (e Exposure) Refuse(all []dir.Loaded) error {
	if e == (Exposure{}) {
		return nil
	}
	for _, l := range all {
		if l.Secret != "" {
			return fmt.Errorf("%v: the secret in %s of %s %q would be sent %s: give %s, listen on this machine only, or allow it with --insecure-secrets",
				l.Pos, l.Secret, l.Type, l.Name, e.Way, e.Remedy)
		}
	}
	return nil
}
