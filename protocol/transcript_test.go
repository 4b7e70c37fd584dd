package protocol_test

import (
	"flag"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/xds"
)

// -update rewrites what testdata expects by what the session does. The
// transcripts are the judge: look at the diff, and commit it only if the
// sentence of the document that each transcript quotes still holds.
var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

func TestTranscripts(t *testing.T) {
	protocoltest.RunTranscripts(t, "testdata/*.txt",
		func(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) protocoltest.Session {
			return protocol.NewSession(v, only, view, opts)
		})
}
