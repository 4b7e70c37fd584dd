package cli

import (
	"runtime/debug"
	"testing"
)

// A release prints the version that the linker has set. Any other build prints the version from Go's
// build information.
func TestVersionPrefersLinkerOverBuildInfo(t *testing.T) {
	built := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.4-0.20261124103000-88ccc0712345"}, Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "88ccc07"}}}
	none := new(debug.BuildInfo)
	for _, tt := range []struct {
		release, commit   string
		info              *debug.BuildInfo
		version, revision string
	}{
		{"v1.2.3", "abc", built, "v1.2.3", "abc"},
		{"v1.2.3", "", built, "v1.2.3", "88ccc07"},
		{"", "", built, "v1.2.4-0.20261124103000-88ccc0712345", "88ccc07"},
		{"", "", none, "(devel)", ""},
	} {
		if v, r := versionOf(tt.release, tt.info), revisionOf(tt.commit, tt.info); v != tt.version || r != tt.revision {
			t.Errorf("%q %q: %q %q, want %q %q", tt.release, tt.commit, v, r, tt.version, tt.revision)
		}
	}
}
