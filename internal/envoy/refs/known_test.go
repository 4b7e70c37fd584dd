package refs

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

var update = flag.Bool("update", false, "write testdata/reviewed.txt anew")

// fields yields every field of the registered v3 messages that a resource may contain.
func fields(yield func(protoreflect.FieldDescriptor)) {
	envoy.Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		d := mt.Descriptor()
		for i := range d.Fields().Len() {
			if f := d.Fields().Get(i); strings.Contains(string(f.FullName()), ".v3.") && !d.IsMapEntry() {
				yield(f)
			}
		}
		return true
	})
}

// names reports whether a field may contain resource names: strings, or the keys of a map.
func names(f protoreflect.FieldDescriptor) bool {
	return f.Kind() == protoreflect.StringKind || f.IsMap() && f.MapKey().Kind() == protoreflect.StringKind
}

func TestRulesExist(t *testing.T) {
	missing := map[protoreflect.FullName]bool{}
	for name := range rules {
		missing[name] = true
	}
	for name := range unnamed {
		missing[name] = true
	}
	for name := range externalTypes {
		missing[name] = true
	}
	for name := range foreignSources {
		missing[name] = true
	}
	for name := range plainData {
		missing[name] = true
	}
	fields(func(f protoreflect.FieldDescriptor) {
		name := f.FullName()
		delete(missing, name)
		if r, ok := rules[name]; ok {
			if !names(f) {
				t.Errorf("%s has no strings", name)
			}
			if from := f.ContainingMessage().Fields().ByName(r.from); r.from != "" && (from == nil || !isSource(from.Message())) {
				t.Errorf("%s: field %s is not a ConfigSource", name, r.from)
			}
		}
		if _, ok := externalTypes[name]; (ok || foreignSources[name]) && f.Message().FullName() != configSource {
			t.Errorf("%s is not a ConfigSource", name)
		}
		if plainData[name] && !isData(f) && f.Message().FullName() != "envoy.config.core.v3.Metadata" {
			t.Errorf("%s has a schema", name)
		}
	})
	for name := range missing {
		t.Errorf("%s: no such field", name)
	}
}

// none lists fields that look like references but are not: prefixes of their names, by reason.
var none = map[string][]string{
	"state that Envoy reports or receives": {"envoy.admin.", "envoy.data.accesslog.", "envoy.data.cluster.", "envoy.data.core.", "envoy.service."},
	"not part of a resource":               {"envoy.config.bootstrap.", "envoy.config.core.v3.Node.cluster"},
	"its own name": {
		"envoy.config.cluster.v3.Cluster.name", "envoy.config.cluster.v3.Cluster.alt_stat_name", "envoy.config.endpoint.v3.ClusterLoadAssignment.cluster_name",
		"envoy.config.endpoint.v3.LbEndpoint.endpoint_name",
		"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.name",
		"envoy.extensions.clusters.dynamic_modules.",
		"envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute.per_route_config_name",
	},
	"see assignment":         {"envoy.config.cluster.v3.Cluster.EdsClusterConfig.service_name"},
	"see collector.field":    {collectionName},
	"statistics by endpoint": {"envoy.config.endpoint.v3.ClusterStats."},
	"a condition": {
		"envoy.extensions.filters.http.fault.v3.HTTPFault.upstream_cluster",
		"envoy.extensions.filters.network.reverse_tunnel.",
	},
	"the removal of a listener is never delayed": {
		"envoy.config.core.v3.EnvoyInternalAddress.server_listener_name",
	},
	"an AWS secret": {"envoy.extensions.common.aws.", "envoy.extensions.filters.http.aws_lambda."},
	"names of secrets in a formatter's own list": {"envoy.extensions.formatter.generic_secret.v3.GenericSecret.secret_configs"},
	"parts of one secret":                        {"envoy.extensions.transport_sockets.tls.v3.GenericSecret.secrets"},
	"see unnamed: all of the type": {
		"envoy.extensions.filters.http.on_demand.v3.OnDemandCds.resources_locator", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy.OnDemand.resources_locator",
		"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRds.srds_resources_locator",
	},
	"see foreignSources: a type that xds does not list": {
		"envoy.config.listener.v3.Listener.FcdsConfig.name",
		"envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket.resource_name",
		"envoy.extensions.filters.network.dubbo_proxy.v3.Drds.route_config_name",
		"envoy.extensions.filters.network.generic_proxy.v3.GenericRds.route_config_name",
		"envoy.extensions.filters.network.thrift_proxy.v3.Trds.route_config_name",
		"envoy.extensions.clusters.aggregate.v3.AggregateClusterResource.resource_name",
	},
}

// Every field whose name suggests a reference has a rule, or a reason to have none. The same holds for
// every field next to a ConfigSource.
func TestRulesAreComplete(t *testing.T) {
	used := map[string]bool{}
	fields(func(f protoreflect.FieldDescriptor) {
		name := string(f.Name())
		if !names(f) {
			return
		}
		suspect := strings.HasSuffix(name, "locator")
		for _, s := range []string{"cluster", "secret", "route_config", "listener", "scope_name", "endpoint_name", "assignment", "collection", "virtual_host_name"} {
			suspect = suspect || strings.Contains(name, s)
		}
		for _, s := range []string{"sds", "rds", "eds", "cds", "leds", "ecds", "vhds", "srds"} {
			suspect = suspect || slices.Contains(strings.Split(name, "_"), s)
		}
		siblings := f.ContainingMessage().Fields()
		for i := range siblings.Len() {
			m := siblings.Get(i).Message()
			suspect = suspect || m != nil && isSource(m) && strings.HasSuffix(name, "name") && !siblings.Get(i).IsList()
		}
		_, rule := rules[f.FullName()]
		_, any := unnamed[f.FullName()]
		if rule || any || !suspect {
			return
		}
		for _, prefixes := range none {
			for _, p := range prefixes {
				if strings.HasPrefix(string(f.FullName()), p) {
					used[p] = true
					return
				}
			}
		}
		t.Errorf("%s: a reference without a rule?", f.FullName())
	})
	for _, prefixes := range none {
		for _, p := range prefixes {
			if !used[p] {
				t.Errorf("%s: no field needs this exception", p)
			}
		}
	}
}

// Every ConfigSource has a type, or fetches a type that xds does not know. Each type with delayed
// removal has such a source.
func TestSourcesHaveTypes(t *testing.T) {
	other := []protoreflect.FullName{
		"envoy.config.core.v3.ExtensionConfigSource.config_source",                                      // see the field with the ExtensionConfigSource
		"envoy.config.cluster.v3.Cluster.EdsClusterConfig.eds_config",                                   // see assignment
		"envoy.config.cluster.v3.Cluster.lrs_server",                                                    // no resources
		"envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes.rds_config_source",    // the scopes have the names
		"envoy.extensions.access_loggers.filters.process_ratelimit.v3.DynamicTokenBucket.config_source", // a number of tokens
	}
	fields(func(f protoreflect.FieldDescriptor) {
		if f.Message() == nil || !isSource(f.Message()) || strings.HasPrefix(string(f.FullName()), "envoy.config.bootstrap.") {
			return
		}
		_, named := nameField[f.FullName()]
		if named || unnamed[f.FullName()] != nil || foreignSources[f.FullName()] || slices.Contains(other, f.FullName()) {
			return
		}
		t.Errorf("%s: which type does this source fetch?", f.FullName())
	})
}

// ADS-8: packages named v3 by other projects, and Envoy's v2, may have references in unknown fields.
func TestReadablePackages(t *testing.T) {
	for pkg, want := range map[protoreflect.FullName]bool{
		"envoy.config.route.v3": true, "xds.core.v3": true, "envoy.config.cluster.redis": true,
		"acme.filters.v3": false, "envoyproxy.v3": false, "envoy.api.v2": false, "google.protobuf": false, "": false,
	} {
		if got := readable(pkg); got != want {
			t.Errorf("%q: %v", pkg, got)
		}
	}
}

// ADS-8: a value without a schema may contain a cluster name in any form.
func TestIsData(t *testing.T) {
	value, fields := (&structpb.Value{}).ProtoReflect().Descriptor(), (&structpb.Struct{}).ProtoReflect().Descriptor()
	for name, want := range map[protoreflect.Name]bool{"struct_value": true, "list_value": true, "string_value": false} {
		if got := isData(value.Fields().ByName(name)); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if !isData(fields.Fields().ByName("fields")) {
		t.Error("a map of values does not count as data")
	}
}

// An unknown resource may refer to every type with delayed removal, except assignments and their
// endpoints, which only clusters refer to.
func TestUnknownMayReferToAnything(t *testing.T) {
	var c collector
	c.addAllTypes()
	for _, typ := range xds.Types() {
		own := typ.Is(xds.Endpoint) || typ.Is(xds.LbEndpoint)
		if got := slices.Contains(c.refs, xds.Ref{Type: typ, Name: xds.Wildcard}); got != (len(typ.ReferredBy()) > 0 && !own) {
			t.Errorf("%s: %v", typ, got)
		}
	}
}

// A new version of Envoy's API may add a field with an unsuspicious name that contains a reference.
// Review each new field, give it a rule if needed, and write the list with -update.
func TestReviewedFields(t *testing.T) {
	var list []string
	missing := map[protoreflect.FullName]bool{}
	for p := range reviewed {
		missing[p] = true
	}
	envoy.Envoy().RangeMessages(func(mt protoreflect.MessageType) bool {
		d := mt.Descriptor()
		pkg := d.ParentFile().Package()
		delete(missing, pkg)
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			_, rule := rules[f.FullName()]
			if reviewed[pkg] && (names(f) || f.Kind() == protoreflect.BytesKind) && !rule && !d.IsMapEntry() {
				list = append(list, string(f.FullName()))
			}
		}
		return true
	})
	for p := range missing {
		t.Errorf("%s: no such package", p)
	}
	slices.Sort(list)
	const file = "testdata/reviewed.txt"
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Fields(string(b))
	for _, f := range list {
		if _, ok := slices.BinarySearch(was, f); !ok {
			t.Errorf("%s is new: does it name a resource?", f)
		}
	}
	for _, f := range was {
		if _, ok := slices.BinarySearch(list, f); !ok {
			t.Errorf("%s was removed", f)
		}
	}
}
