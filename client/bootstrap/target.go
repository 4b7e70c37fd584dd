package bootstrap

import (
	"fmt"
	"net/url"
	"strings"
)

// Listener returns the name of the Listener that a client of gRPC watches for a target, such as
// "xds:///backend" or "xds://authority/backend" (gRFC A47). It is an error if there is no such
// authority in the bootstrap.
func (c *GRPCConfig) Listener(target string) (string, error) {
	rest, ok := strings.CutPrefix(target, "xds:")
	if !ok {
		return "", fmt.Errorf("target %q: the scheme must be xds", target)
	}
	template, name := c.listener, strings.TrimPrefix(rest, "/")
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		var authority string
		authority, name, _ = strings.Cut(after, "/")
		authority, err := url.PathUnescape(authority)
		if err != nil {
			return "", fmt.Errorf("target %q: %w", target, err)
		}
		if authority != "" {
			of, ok := c.listeners[authority]
			if !ok {
				return "", fmt.Errorf("target %q: the bootstrap has no authority %q", target, authority)
			}
			template = of
		}
	}
	name, err := url.PathUnescape(name)
	if err != nil {
		return "", fmt.Errorf("target %q: %w", target, err)
	}
	if template == "" {
		template = "%s" // "Defaults to "%s"."
	}
	return filled(template, name), nil
}

// ServerListenerFor returns the name of the Listener that a server of gRPC watches which listens
// on an address (gRFC A36). It is an error if the bootstrap has no template: "There is no default".
func (c *GRPCConfig) ServerListenerFor(address string) (string, error) {
	if c.ServerListener == "" {
		return "", fmt.Errorf("the bootstrap has no server_listener_resource_name_template, which servers need")
	}
	return filled(c.ServerListener, address), nil
}

// filled puts a text in the place of "%s". "If the template starts with "xdstp:", the replaced
// string will be %-encoded."
func filled(template, s string) string {
	if strings.HasPrefix(template, "xdstp:") {
		parts := strings.Split(s, "/")
		for i, p := range parts {
			parts[i] = url.PathEscape(p)
		}
		s = strings.Join(parts, "/")
	}
	return strings.ReplaceAll(template, "%s", s)
}
