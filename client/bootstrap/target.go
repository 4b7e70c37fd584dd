package bootstrap

import (
	"fmt"
	"net/url"
	"strings"
)

// ListenerName returns the name of the Listener resource that a gRPC client watches for a target such as
// "xds:///backend" or "xds://authority/backend" (gRFC A47). An authority that is not in the bootstrap
// is an error.
func (c *GRPCConfig) ListenerName(target string) (string, error) {
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
		template = "%s" // gRFC A47: the default template
	}
	return fillTemplate(template, name), nil
}

// ServerListenerName returns the name of the Listener resource that a gRPC server watches for its
// listening address. A bootstrap without a template is an error: gRFC A36 has no default template.
func (c *GRPCConfig) ServerListenerName(address string) (string, error) {
	if c.ServerListenerTemplate == "" {
		return "", fmt.Errorf("the bootstrap has no server_listener_resource_name_template, which a gRPC server needs")
	}
	return fillTemplate(c.ServerListenerTemplate, address), nil
}

// fillTemplate replaces each "%s" in a template by s. In a template that begins with "xdstp:" it
// percent-encodes s, but keeps each "/" (gRFC A47).
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
