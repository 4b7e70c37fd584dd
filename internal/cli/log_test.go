package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Node IDs and texts of NACKs are from clients: no format of the log has characters that turn the direction of
// text or control a terminal.
func TestLogEscapesTextOfClients(t *testing.T) {
	for _, format := range []string{"json", "text", "auto"} {
		var out bytes.Buffer
		l := LogFlags{Level: "info", Format: format}
		log, err := l.Open(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Warn("client refused a response (NACK)", "node", "edge\u202e1-txt", "error", "a\u0085b\u009b2J\u2066c")
		log.With("node", "x\u202ey").Error("urgent")
		l.Close()
		if got := out.String(); strings.ContainsAny(got, "\u202e\u0085\u009b\u2066") || strings.Count(got, `\u202e`) != 2 {
			t.Errorf("%s: %+q", format, got)
		}
	}
}
