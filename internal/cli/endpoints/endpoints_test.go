package endpoints

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestEndpointsFileHasPlaceOfMistake(t *testing.T) {
	for text, want := range map[string]string{
		`[{"address": "10.0.0.1", "port": 1}]`:         "1:1: an object is needed, not a list",
		"\ufeff \n5":                                   "2:1: an object is needed, not int 5",
		`{"endpoints": {"address": "10.0.0.1"}}`:       "1:15: endpoints: a list is needed, not a mapping",
		"{\"ttl\":\n 30, \"endpoints\": []}":           "2:2: ttl: a string is needed, not int 30 (put it in quotes)",
		`{"endpoint": []}`:                             `1:2: unknown key "endpoint" in the file (did you mean "endpoints"?)`,
		`{"endpoints": [], "endpoints": []}`:           `1:19: duplicate key "endpoints", first on line 1`,
		`{"endpoints": [1, ]}`:                         "1:19: invalid character ']' looking for beginning of value (remove the comma before ])",
		`{"endpoints": []} {}`:                         "1:19: more after the end of the value",
		`{"endpoints": null}`:                          "1:15: endpoints: a list is needed, not null",
		"":                                             "1:1: the file ends in the middle of a value",
		"\ufeff{\"ttl\": \"30s\", \"endpoints\": [5]}": "", // the server reports a bad endpoint
		`{}`: "",
	} {
		t.Run(text, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "e.json")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got := ""
			if _, err := readEndpoints(strings.NewReader(""), file); err != nil {
				got = strings.TrimPrefix(err.Error(), file+":")
			}
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}
