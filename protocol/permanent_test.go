package protocol

import (
	"strings"
	"testing"
	"time"
)

func TestCannotPass(t *testing.T) {
	for text, want := range map[string]bool{
		"Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s): name: \"a\"": true,
		"Protobuf message (type envoy.config.cluster.v3.Cluster with unknown field set {99}) has unknown fields":                 true,
		"Unable to parse JSON as proto (INVALID_ARGUMENT:(resources): invalid name x)":                                           true,
		"Error adding/updating listener(s) l: Didn't find a registered implementation for 'f' with type URL: ''":                 true,
		"regex '^/[a-z]{90}' RE2 program size of 180 > max program size of 100 set for the error level threshold":                true,
		"Invalid regex: missing ]": true,
		"missing ): (":             true, // Envoy 1.40, of the regex (
		"Error adding/updating listener(s) l: no argument for repetition operator: *":                                                  true,
		"Error adding/updating cluster(s) c: eds_cluster_config set in a non-EDS cluster":                                              true,
		"Error adding/updating listener(s) l: Error: non-terminal filter named f of type f is the last filter in a http filter chain.": true,
		"Error adding/updating listener(s) l: the file (missing): no such file":                                                        false,
		"LDS response validation error: [field:api_listener error:unsupported filter]":                                                 true,
		"field \"a\": error parsing regexp: missing closing ]":                                                                         true,
		"it's unsupported.":                            true,
		"the client's filter isn't known: unsupported": true,
		"Error adding/updating listener(s) regex-8080: cannot bind '0.0.0.0:80': Address already in use": false,
		"Error adding/updating listener(s) regex: cannot bind '0.0.0.0:80': Address already in use":      false,
		"Error adding/updating listener(s) a: cannot bind 'unsupported': Address already in use":         false,
		`resource "the regex one": cluster "regex" does not exist`:                                       false,
		"Error adding/updating listener(s) my.regex/unsupported: route_regex: unknown cluster":           false,
		"'regex' 'unsupported'": false,
		"":                      false,
		strings.Repeat("x ", maxBlameText/2) + " regex": false,
	} {
		if got := CannotPass(text, func(word string) bool { return word == "regex" && strings.Contains(text, "listener(s) regex: ") }); got != want {
			t.Errorf("HEAL-2 %.120q: %v", text, got)
		}
	}
}

// A long text without closing quotation marks is read in linear time.
func TestCannotPassIsCheap(t *testing.T) {
	text := strings.Repeat("'a \"b `c ", maxBlameText/9)
	start := time.Now()
	for range 100 {
		CannotPass(text, func(string) bool { return false })
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("100 texts: %v", took)
	}
}
