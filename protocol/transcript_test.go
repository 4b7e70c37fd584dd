package protocol_test

import (
	"flag"
	"testing"

	"github.com/chancery-xds/chancery/protocol"
	"github.com/chancery-xds/chancery/protocol/protocoltest"
	"github.com/chancery-xds/chancery/protocol/transcripts"
	"github.com/chancery-xds/chancery/xds"
)

// -update replaces the expected output in testdata by the session's output. Transcripts state the
// rules: look at the diff, and commit it only if each quoted sentence of the document still holds.
var _ = flag.Bool("update", false, "rewrite the transcripts in testdata")

func TestTranscripts(t *testing.T) {
	transcripts.Run(t, "testdata/*.txt",
		func(v xds.Variant, only *xds.Type, view xds.View, opts protocol.Options) protocoltest.Session {
			return protocol.NewSession(v, only, view, opts)
		})
}
