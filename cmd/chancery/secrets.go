package main

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/source/dir"
	"github.com/chancery-xds/chancery/xds"
)

// An exposure is a way on which secrets would reach who may not have them. The zero
// value is none.
type exposure struct{ way, mend string }

// exposed returns how what is served may be read by others than its clients: in plain
// text on its way, or by whoever connects, since nobody asks who that is. Who may use
// a unix socket is said by the mode of its file.
func exposed(f *front, r *restFront) exposure {
	if at := cmp.Or(f.plain(), r.plain(f)); at != "" {
		return exposure{"over the network in plain text, from " + at, "--tls-cert, --tls-key and --client-ca"}
	}
	if f.tls.ClientCA != "" {
		return exposure{}
	}
	all := f.parsed
	if r.address != "" {
		all = append(slices.Clip(all), r.parsed)
	}
	for _, a := range all {
		if !a.Loopback() {
			return exposure{"to whoever connects to " + a.String(), "--client-ca"}
		}
	}
	return exposure{}
}

// refuseAny is refuse of a resource that is in no file and would be exposed.
func (e exposure) refuseAny(secrets *internalsecret.Finder, r *xds.Resource, m proto.Message) error {
	if found := secrets.Find(m); len(found.Values) > 0 {
		return fmt.Errorf("the secret in %s of %s %q would be sent %s: give %s, listen on this machine only, or allow it with --insecure-secrets",
			found.Values[0], r.Type, r.Name, e.way, e.mend)
	}
	return nil
}

// refuse returns an error if a resource that would be exposed has a secret.
func (e exposure) refuse(all []dir.Loaded) error {
	if e == (exposure{}) {
		return nil
	}
	for _, l := range all {
		if l.Secret != "" {
			return fmt.Errorf("%v: the secret in %s of %s %q would be sent %s: give %s, listen on this machine only, or allow it with --insecure-secrets",
				l.Pos, l.Secret, l.Type, l.Name, e.way, e.mend)
		}
	}
	return nil
}
