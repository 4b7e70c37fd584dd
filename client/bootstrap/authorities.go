package bootstrap

import (
	"maps"
	"net/url"

	"go.yaml.in/yaml/v4"

	"github.com/chancery-xds/chancery/client"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/internal/envoy/protoyaml"
)

// authorities sets the servers for authorities of xdstp names: "resource_authority is compared
// against the authorities in any peer ConfigSource", here lds_config or cds_config, then
// "sequentially with the authorities in each ConfigSource in config_sources. The first ConfigSource
// to match wins." If an authority of a locator matches none of these, it uses
// "default_config_source" or, without that, the peer. All other authorities are unknown to the
// client.
func (e *EnvoyConfig) authorities(d *protoyaml.Decoder, doc *yaml.Node, r located) error {
	boot := envoy.Envoy().New(bootstrapName).Descriptor()
	read := func(n *yaml.Node, at string) (located, *client.Config, error) {
		s := located{envoy.Envoy().New(sourceName), at}
		d.Message(n, s.Interface(), at)
		if err := firstError(d); err != nil {
			return s, nil, err
		}
		c, err := e.source(s, nil)
		return s, c, err
	}
	named := map[string]client.Authority{}
	for i, n := range items(child(doc, boot, "config_sources")) {
		s, c, err := read(n, "config_sources["+itoa(i)+"]")
		if err != nil {
			return err
		}
		for _, name := range namesOf(s) {
			if _, has := named[name]; !has {
				named[name] = client.Authority{Servers: c.Servers}
			}
		}
	}
	var other client.Authority // without servers: the peer's servers
	if n := child(doc, boot, "default_config_source"); n != nil {
		_, c, err := read(n, "default_config_source")
		if err != nil {
			return err
		}
		other.Servers = c.Servers
	}
	for _, c := range []*client.Config{e.ADS, e.Listeners, e.Clusters} {
		if c != nil {
			c.Authorities = maps.Clone(named)
		}
	}
	for _, peer := range []struct {
		source, locator string
		*client.Config
	}{{"lds_config", e.ListenersLocator, e.Listeners}, {"cds_config", e.ClustersLocator, e.Clusters}} {
		if peer.Config == nil {
			continue
		}
		for _, name := range namesOf(located{sub(r, peer.source), ""}) {
			peer.Authorities[name] = client.Authority{}
		}
		if u, err := url.Parse(peer.locator); err == nil && u.Scheme == "xdstp" && u.Host != "" {
			if _, has := peer.Authorities[u.Host]; !has {
				peer.Authorities[u.Host] = other
			}
		}
	}
	return nil
}

// namesOf returns the authorities of a ConfigSource.
func namesOf(source located) (names []string) {
	list := source.Get(source.Descriptor().Fields().ByName("authorities")).List()
	for i := range list.Len() {
		names = append(names, str(list.Get(i).Message(), "name"))
	}
	return names
}
