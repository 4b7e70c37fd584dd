package secrets

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy"
)

// general are the names of marked fields that are not in words.
var general = map[protoreflect.Name]bool{"typed_config": true, "config": true}

// For each marked field of Envoy's API, its name or the name of its message keeps the lines of its file
// from being shown.
func TestMarkedNamesHideLines(t *testing.T) {
	n := 0
	envoy.Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		for i := range mt.Descriptor().Fields().Len() {
			fd := mt.Descriptor().Fields().Get(i)
			if !Marked(fd) {
				continue
			}
			n++
			names := []string{string(fd.Name()), fd.JSONName()}
			if general[fd.Name()] { // the @type names the message
				names = []string{string(mt.Descriptor().Name())}
			}
			for _, name := range names {
				if ShowsLines([]byte(name+": x"), nil) {
					t.Errorf("SAFE-6 a file with %s would be shown", fd.FullName())
				}
			}
		}
		return true
	})
	if n < 30 {
		t.Errorf("only %d fields are marked", n)
	}
}

func TestShowsLines(t *testing.T) {
	for src, want := range map[string]bool{
		"name: a\nconnect_timeout: 1s\n\x00":           true,
		"route: {cluster: b, prefix_rewrite: \"\\1\"}": true,

		"inline_string: x":  false,
		"inlineString: x":   false,
		"inline_[string: x": false,
		"inline\n_bytes: x": false,
		"\"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret": false,
		"\"inline\\u005fstring\": x":               false,
		"\"inline\\x5fstring\": x":                 false,
		"- header: {key: Authorization, value: x}": false,
		"- header: {key: X-API-Key, value: x}":     false,
		"-----BEGIN EC PRIVATE KEY-----":           false,
		"# the pass-word is x":                     false,
		"licence: x":                               false, // the field of our own message below
	} {
		if got := ShowsLines([]byte(src), []protoreflect.Name{"licence"}); got != want {
			t.Errorf("SAFE-6 %q: %v, want %v", src, got, want)
		}
	}
	if !ShowsLines([]byte("licence: x"), nil) {
		t.Error("an unmarked name hides the file")
	}
}

func TestShowsLine(t *testing.T) {
	for line, want := range map[string]bool{
		`"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager`: true,
		"connect_timeout: 1s": true,
		"  load_assignment: {endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 8080}}}}]}]}": true,

		"x: -----BEGIN CERTIFICATE-----":                                       false,
		"x: MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg":                  false,
		"x: " + strings.Repeat("abcdefghij", 6):                                false,
		"x: d131dd02c5e6eec4693d9a0698aff95c":                                  false,
		"x: eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_X": false,
		"x: https://user:pw@example.com/":                                      false,
		"x: https://example.com/a@b":                                           true,
	} {
		if got := ShowsLine(line); got != want {
			t.Errorf("SAFE-6 %q: %v, want %v", line, got, want)
		}
	}
}
