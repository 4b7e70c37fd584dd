package bootstrap

import (
	"fmt"
	"net/url"
	"strings"
)

// Listener returns the name of the Listener resource that a gRPC client watches for a target such as
// "xds:///backend" or "xds://authority/backend" (gRFC A47). An authority that is not in the bootstrap
// is an error.
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
	return fillTemplate(template, name), nil
}

// ServerListenerFor returns the name of the Listener resource that a gRPC server watches for its
// listening address (gRFC A36). Without a template in the bootstrap it is an error: "There is no
// default".
func (c *GRPCConfig) ServerListenerFor(address string) (string, error) {
	if c.ServerListener == "" {
		return "", fmt.Errorf("the bootstrap has no server_listener_resource_name_template, which a gRPC server needs")
	}
	return fillTemplate(c.ServerListener, address), nil
}

// fillTemplate replaces "%s" in a template. "If the template starts with "xdstp:", the replaced string
// will be %-encoded."
func fillTemplate(template, s string) string {
	if strings.HasPrefix(template, "xdstp:") {
		parts := strings.Split(s, "/")
		for i, p := range parts {
			parts[i] = url.PathEscape(p)
		}
		s = strings.Join(parts, "/")
	}
	return strings.ReplaceAll(template, "%s", s)
}
