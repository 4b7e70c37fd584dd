package daemon

import (
	"strings"
	"testing"
)

// Links of the page lead only to web servers, with known placeholders after the host.
func TestPageLinks(t *testing.T) {
	for text, want := range map[string]string{
		"Logs=https://logs.example/?q={node}&g={group}":     "",
		"Dash=http://d:3000/d/x#{type}/{name}":              "",
		"Plain=https://wiki.example":                        "",
		"https://logs.example/":                             "write NAME=URL",
		" =https://logs.example/":                           "write NAME=URL",
		"Logs=javascript:alert(1)":                          "must begin with",
		"Logs=data:text/html,x":                             "must begin with",
		"Logs=//logs.example/":                              "must begin with",
		"Logs={node}":                                       "must begin with",
		"Logs=https://{node}.example/":                      "only after the host",
		"Logs=https://logs.example/{zone}":                  "{zone} is not one of {node}, {group}, {type}, {name}",
		"Logs=https://user:password@logs.example/?q={node}": "neither user nor password",
		"Logs=https:///x":                                   "must begin with",
	} {
		all, err := pageLinks([]string{text})
		switch {
		case want == "" && (err != nil || len(all) != 1 || all[0].Name+"="+all[0].URL != text):
			t.Errorf("%s: %v, %v", text, all, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
