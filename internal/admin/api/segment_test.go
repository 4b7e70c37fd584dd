package api_test

import (
	"net/url"
	"testing"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

func TestSegmentOfDots(t *testing.T) {
	for name, want := range map[string]string{"web": "web", "a/b": "a%2Fb", ".": "%25.", "..": "%25..", "%.": "%25%25.", "%%..": "%25%25%25..", "...": "...", "%": "%25", "": ""} {
		got := api.Segment(name)
		decoded, err := url.PathUnescape(got)
		if err != nil || got != want || api.NameOf(decoded) != name {
			t.Errorf("%q: %q, want %q, and back %q (%v)", name, got, want, api.NameOf(decoded), err)
		}
	}
}
