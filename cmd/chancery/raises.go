package main

import (
	"context"
	"log/slog"
	"regexp"
	"strings"
)

// raises adds to a line that tells of a limit the flag that raises it. The server, which
// writes the line, is a library and knows no flags.
type raises struct{ slog.Handler }

// Lines that are about one limit, and those whose error says which.
var (
	ofOneLimit = map[string]string{
		"client sends requests too fast: they wait":                    "--max-rate",
		"an address sends requests too fast: they wait":                "--max-address-rate",
		"client opens and ends streams too fast: its connection waits": "--max-stream-rate",
	}
	byError = []struct {
		says *regexp.Regexp
		flag string
	}{
		{regexp.MustCompile(`streams are open on which no request has come`), "--max-silent-streams"},
		{regexp.MustCompile(`streams of other services`), "--max-other-streams"},
		{regexp.MustCompile(`\bpolls( that this server takes)? are held`), "--max-polls"},
		{regexp.MustCompile(`streams( that this server takes)? are open|the node has \d+ streams`), "--max-streams"},
		{regexp.MustCompile(`received message larger than max`), "--max-request"},
		{regexp.MustCompile(`\bnode id of \d+ bytes|\bname( or version)? of \d+ bytes`), "--max-name-length"},
		{regexp.MustCompile(`the names of all streams hold|polls hold all the names|polls have \d+ bytes`), "--max-held-total"},
		{regexp.MustCompile(`names( and a node)? of \d+ bytes (on one stream|in one poll)`), "--max-held"},
		{regexp.MustCompile(`\bnode of \d+ bytes`), "--max-node"},
		{regexp.MustCompile(`resource types on one stream`), "--max-types"},
		{regexp.MustCompile(`requests come from this address`), "--max-address-rate"},
		{regexp.MustCompile(`\b\d+ names( of|,)`), "--max-names"},
		{regexp.MustCompile(`the client has read nothing for`), "--write-timeout"},
		{regexp.MustCompile(`no request came for`), "--first-request-timeout"},
		{regexp.MustCompile(`requests that are not whole have more bytes|no room for its request`), "--max-unfinished"},
		{regexp.MustCompile(`a request came too slowly`), "--read-timeout"},
	}
)

// Handle implements [slog.Handler].
func (h raises) Handle(ctx context.Context, r slog.Record) error {
	if flag := raisedBy(r); flag != "" {
		r = r.Clone()
		r.AddAttrs(slog.String("flag", flag))
	}
	return h.Handler.Handle(ctx, r)
}

// raisedBy returns the flag that raises the limit which a line tells of, or "".
func raisedBy(r slog.Record) (flag string) {
	if flag = ofOneLimit[r.Message]; flag != "" || !strings.Contains(r.Message, " a limit") {
		return flag
	}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "error" {
			return true
		}
		for _, e := range byError {
			if e.says.MatchString(a.Value.String()) {
				flag = e.flag
				break
			}
		}
		return false
	})
	return flag
}

// WithAttrs implements [slog.Handler].
func (h raises) WithAttrs(as []slog.Attr) slog.Handler { return raises{h.Handler.WithAttrs(as)} }

// WithGroup implements [slog.Handler].
func (h raises) WithGroup(name string) slog.Handler { return raises{h.Handler.WithGroup(name)} }
