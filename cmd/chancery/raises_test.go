package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chancery-xds/chancery/internal/unfinished"
)

// What ends a stream or a connection names the flag that allows more: each text of a limit
// that stands in the code has one, but for those of what no flag sets.
func TestFlagsOfLimits(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(raises{slog.NewTextHandler(&out, nil)}).With("a", 1).WithGroup("g")
	flag := func(line, text string) string {
		out.Reset()
		log.Warn(line, "peer", "127.0.0.1:1", "error", text) //nolint:sloglint // the lines of others
		_, flag, _ := strings.Cut(strings.TrimSpace(out.String()), "g.flag=")
		return flag
	}
	const ends = "stream closed: client exceeded a limit or sent a malformed request"
	limits := regexp.MustCompile(`"((?:limit exceeded: |%w: |%s with )[^"]+|no request came for [^"]+|the client has read nothing for [^"]+)"`)
	filled := strings.NewReplacer("%d", "7", "%s", "EDS", "%v", "7s", "%w", "limit exceeded")
	seen := []string{"--max-request"} // gRPC says that
	for _, pattern := range []string{"../../server/*.go", "../../protocol/session.go", "../../wire/request.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range limits.FindAllSubmatch(code, -1) {
				text := string(m[1])
				if strings.HasSuffix(file, "_test.go") || !strings.Contains(text, "limit exceeded") && !strings.Contains(text, " for ") && !strings.Contains(string(m[0]), "%w") {
					continue
				}
				none := strings.Contains(text, "type_url") || strings.Contains(text, "to a Fetch method") || strings.Contains(text, "there was no room for it")
				got := flag(ends, filled.Replace(text))
				if (got == "") != none {
					t.Errorf("%s: %q has the flag %q", file, text, got)
				}
				seen = append(seen, got)
			}
		}
	}
	for _, why := range []unfinished.Reason{unfinished.TooMuch, unfinished.TooSlow, unfinished.TooLong} {
		seen = append(seen, flag("connection closed: unfinished requests exceed a limit", string(why)))
	}
	for line := range ofOneLimit {
		seen = append(seen, flag(line, ""))
	}
	slices.Sort(seen)
	want := []string{
		"--first-request-timeout", "--max-address-rate", "--max-held", "--max-held-total", "--max-name-length", "--max-names", "--max-node",
		"--max-other-streams", "--max-polls", "--max-rate", "--max-request", "--max-silent-streams", "--max-stream-rate", "--max-streams",
		"--max-types", "--max-unfinished", "--read-timeout", "--write-timeout",
	}
	if got := slices.DeleteFunc(slices.Compact(seen), func(s string) bool { return s == "" }); !slices.Equal(got, want) {
		t.Errorf("flags %q, want %q", got, want)
	}
	for text, want := range map[string]string{
		"limit exceeded: a node id of 5 bytes, more than 4":                                                                                            "--max-name-length",
		"limit exceeded: an EDS name of 5 bytes, more than 4":                                                                                          "--max-name-length",
		"limit exceeded: a EDS name or version of 5 bytes is stated, more than 4":                                                                      "--max-name-length",
		"DiscoveryRequest with a node of 5 bytes, more than 4: limit exceeded":                                                                         "--max-node",
		"DiscoveryRequest with 5 names, more than 4: limit exceeded":                                                                                   "--max-names",
		"limit exceeded: names of 500 bytes on one stream, more than 4":                                                                                "--max-held",
		"limit exceeded: names and a node of 500 bytes on one stream, more than 4":                                                                     "--max-held",
		"limit exceeded: names and a node of 7 bytes in a poll that is to be held, and there is no room for them: polls have 7 bytes; try again later": "--max-held-total",
		"limit exceeded: polls hold all the names that this server takes":                                                                              "--max-held-total",
		"grpc: received message larger than max (5 vs. 4)":                                                                                             "--max-request",
		"no request": "",
	} {
		if got := flag(ends, text); got != want {
			t.Errorf("%q has the flag %q, want %q", text, got, want)
		}
	}
	if got := flag("client refused a response", "no request came for 7s"); got != "" {
		t.Errorf("what a client says is taken for a limit: %q", got)
	}
}
