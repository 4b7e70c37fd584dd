package daemon

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/chancery-xds/chancery/internal/admin/api"
)

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// placeholders are the values that a link of the page may have.
var placeholders = []string{"{node}", "{group}", "{type}", "{name}"}

// standIn is parsed in place of a value, because a URL cannot have braces everywhere.
const standIn = "placeholder"

// pageLinks parses the links of --page-link. Only http and https are allowed, because the page is a part of the server's
// origin, and a script in a link would run there.
func pageLinks(flags []string) (all []api.PageLink, err error) {
	for _, text := range flags {
		name, template, ok := strings.Cut(text, "=")
		wrong := func(why string) error { return fmt.Errorf("--page-link: %q: %s", text, why) }
		if !ok || strings.TrimSpace(name) == "" {
			return nil, wrong("write NAME=URL")
		}
		for _, p := range placeholder.FindAllString(template, -1) {
			if !slices.Contains(placeholders, p) {
				return nil, wrong(p + " is not one of " + strings.Join(placeholders, ", "))
			}
		}
		u, err := url.Parse(placeholder.ReplaceAllLiteralString(template, standIn))
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return nil, wrong("the URL must begin with https://HOST or http://HOST")
		case strings.Contains(u.Host, standIn) || u.User != nil:
			return nil, wrong("placeholders are allowed only after the host, which has neither user nor password")
		}
		all = append(all, api.PageLink{Name: name, URL: template})
	}
	return all, nil
}
