package importer

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/internal/envoy/refs"
	"github.com/chancery-xds/chancery/xds"
)

// decide chooses the resources that stay in the bootstrap: the clusters that Envoy needs before it
// reaches a server, and the resources that Envoy accepts only in a bootstrap.
func (im *importer) decide() {
	need := im.needed()
	for _, e := range im.entries {
		switch {
		case e.dropped:
		case e.typ.Is(xds.Listener) && child(e.node, im.descriptor(xds.Listener), "api_listener") != nil:
			e.stays = "Envoy accepts an api_listener only there"
		case e.typ.Is(xds.Cluster) && need[e.name] != "":
			e.stays = need[e.name]
			im.out.Clusters = append(im.out.Clusters, e.name)
		}
	}
	im.dropServerClusters()
	im.decideSecrets()
	if im.boot == nil {
		if i := slices.IndexFunc(im.entries, func(e *entry) bool { return e.stays != "" }); i >= 0 {
			im.boot, im.bootFrom = mapping(), im.entries[i].source
		}
	}
}

// needed returns the names of the clusters that the bootstrap needs, each with the reason.
func (im *importer) needed() map[string]string {
	need := map[string]string{}
	add := func(name, why string) {
		if need[name] == "" {
			need[name] = why
		}
	}
	if im.boot != nil {
		md := im.Types.New(bootstrapName).Descriptor()
		for i := 0; i+1 < len(im.boot.Content); i += 2 {
			key, v := fieldOf(md, im.boot.Content[i].Value), im.boot.Content[i+1]
			if key == "node" || v.Tag == "!!null" {
				continue
			}
			if key == "cluster_manager" {
				if local := child(v, md.Fields().ByName("cluster_manager").Message(), "local_cluster_name"); local != nil {
					add(local.Value, "it is cluster_manager.local_cluster_name")
				}
			}
			anything := false
			for _, r := range refs.Of(im.Types, im.bootMessageOf(key, v)) {
				switch {
				case !r.Type.Is(xds.Cluster):
				case r.Name == xds.Wildcard:
					anything = true
				default:
					add(r.Name, key+" needs it")
				}
			}
			// An extension of unknown meaning may name a cluster in any field, so each scalar that
			// equals a cluster name counts. The runtime contains only numbers and words, and all fields
			// of admin are known.
			if anything && key != "layered_runtime" && key != "admin" {
				scalars(v, func(n *yaml.Node) { add(n.Value, key+" may need it") })
			}
		}
	}
	// "the cluster … must be statically defined": the clusters that a ConfigSource names.
	for _, e := range im.entries {
		e.walk(im.Types, func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
			if md.FullName() != apiSource {
				return
			}
			for _, r := range refs.Of(im.Types, part(im.Types, n, md).Interface()) {
				if r.Type.Is(xds.Cluster) {
					add(r.Name, fmt.Sprintf("a config source of %s %q needs it", Kind(e.typ), e.name))
				}
			}
		})
	}
	return need
}

// dropServerClusters leaves out the clusters of the servers that Envoy asked so far.
func (im *importer) dropServerClusters() {
	if im.dynamic == nil {
		return
	}
	im.out.HasDynamicResources = true
	im.note("dynamic_resources are left out: \"chancery bootstrap envoy --from\" writes the address of this server instead")
	others := map[string]bool{}
	for _, e := range im.entries {
		if m := e.message(); m != nil {
			for _, r := range refs.Of(im.Types, m) {
				others[r.Type.Short+" "+r.Name] = true
			}
		}
	}
	m := im.bootMessageOf("dynamic_resources", im.dynamic)
	for _, r := range refs.Of(im.Types, m) {
		if e := im.find(xds.Cluster, r.Name); r.Type.Is(xds.Cluster) && e != nil && e.stays == "" && !others["CDS "+r.Name] {
			e.dropped = true
			im.note("cluster %q is left out: only dynamic_resources referred to it", e.name)
			im.dropSecretsOf(e)
		}
	}
	md := im.Types.New(bootstrapName).Descriptor().Fields().ByName("dynamic_resources").Message()
	asks := false
	for _, field := range []string{"lds_config", "cds_config"} {
		v := child(im.dynamic, md, field)
		switch {
		case v == nil:
		case filePath(v) == "":
			asks = true
		case len(im.files) == 1:
			im.note("%s reads %s: to import that, too, import the directory that contains it", field, filePath(v))
		}
	}
	if asks && !im.isConfigDump {
		im.note("resources that Envoy gets from another server are not in a file: --from-admin imports them from the running Envoy")
	}
}

// filePath returns the file that a ConfigSource reads; "" if it reads none.
func filePath(source *yaml.Node) (path string) {
	for i := 0; i+1 < len(source.Content); i += 2 {
		switch v := source.Content[i+1]; source.Content[i].Value {
		case "path":
			return v.Value
		case "path_config_source", "pathConfigSource":
			if p := follow(v, "path"); p != nil {
				return p.Value
			}
		}
	}
	return ""
}

// dropSecretsOf leaves out the secrets that only a dropped cluster refers to.
func (im *importer) dropSecretsOf(cluster *entry) {
	secretsIn := func(e *entry, visit func(name string)) {
		e.walk(im.Types, func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
			if name := child(n, md, "name"); md.FullName() == secretConfig && name != nil {
				visit(name.Value)
			}
		})
	}
	used := map[string]bool{}
	for _, e := range im.entries {
		if !e.dropped {
			secretsIn(e, func(name string) { used[name] = true })
		}
	}
	if im.boot != nil {
		scalars(im.boot, func(n *yaml.Node) { used[n.Value] = true })
	}
	secretsIn(cluster, func(name string) {
		if e := im.find(xds.Secret, name); e != nil && !e.dropped && !used[name] {
			e.dropped = true
			im.note("secret %q is left out: only cluster %q referred to it", name, cluster.name)
		}
	})
}

// decideSecrets keeps the secrets in the bootstrap that only the bootstrap refers to, by their names
// alone.
func (im *importer) decideSecrets() {
	served := map[string]bool{}
	note := func(n *yaml.Node, stays bool) func(*yaml.Node, protoreflect.MessageDescriptor, string) {
		return func(n *yaml.Node, md protoreflect.MessageDescriptor, _ string) {
			if name := child(n, md, "name"); md.FullName() == secretConfig && name != nil && (!stays || child(n, md, "sds_config") == nil) {
				if stays {
					im.secretsStay[name.Value] = true
				} else {
					served[name.Value] = true
				}
			}
		}
	}
	for _, e := range im.entries {
		if !e.dropped {
			e.walk(im.Types, note(e.node, e.stays != ""))
		}
	}
	if im.boot != nil {
		walk(im.Types, im.boot, im.Types.New(bootstrapName).Descriptor(), "", note(im.boot, true))
	}
	for _, e := range im.entries {
		if e.typ.Is(xds.Secret) && im.secretsStay[e.name] && !served[e.name] {
			e.stays = "the bootstrap needs it"
		}
	}
}
