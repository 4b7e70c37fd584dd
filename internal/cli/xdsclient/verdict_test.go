package xdsclient

import (
	"errors"
	"io"
	"testing"

	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/relay/fetch"
	"github.com/chancery-xds/chancery/xds"
)

// The hint about a name without an answer depends on the variant of the protocol.
func TestHintForMissingAnswerDependsOnVariant(t *testing.T) {
	a := &fetch.Answer{Resources: []fetch.Found{{Type: xds.Cluster, Name: "a"}}, Missing: []fetch.Missing{{Type: xds.Cluster, Name: "b", Asked: true}}}
	for want, x := range map[string]Flags{
		"a SotW server does not report missing resources; a delta server does: --delta": {},
		"a SotW server does not report missing resources":                               {rest: true},
		"this server does not report missing resources":                                 {Delta: true},
	} {
		said, is := errors.AsType[cli.Failure]((&Server{Flags: x}).Verdict(a, io.Discard))
		if !is || said.Code != cli.NotFound || said.Hint != want {
			t.Errorf("%+v, want %s", said, want)
		}
	}
}
