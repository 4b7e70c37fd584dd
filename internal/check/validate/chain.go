package validate

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/chancery-xds/chancery/findings"
)

// Terminal and non-terminal filters, by the package of their settings. Other filters are not checked.
var (
	terminalHTTP = words("envoy.extensions.filters.http.", "router")
	otherHTTP    = words("envoy.extensions.filters.http.", `adaptive_concurrency admission_control bandwidth_limit basic_auth buffer
		cdn_loop compressor connect_grpc_bridge cors csrf decompressor dynamic_forward_proxy ext_authz ext_proc fault
		grpc_http1_bridge grpc_json_transcoder grpc_stats grpc_web gzip header_mutation health_check ip_tagging jwt_authn
		local_ratelimit lua oauth2 on_demand original_src ratelimit rbac set_metadata stateful_session tap wasm`)
	terminalNetwork = words("envoy.extensions.filters.network.", "http_connection_manager tcp_proxy echo direct_response redis_proxy thrift_proxy")
	otherNetwork    = words("envoy.extensions.filters.network.", "connection_limit ext_authz local_ratelimit mongo_proxy ratelimit rbac sni_cluster sni_dynamic_forward_proxy zookeeper_proxy wasm")
)

func words(prefix, list string) map[protoreflect.FullName]bool {
	all := map[protoreflect.FullName]bool{}
	for w := range strings.FieldsSeq(list) {
		all[protoreflect.FullName(prefix+w+".v3")] = true
	}
	return all
}

func (w *walk) httpFilters(m protoreflect.Message) {
	w.chain(m, "http_filters", terminalHTTP, otherHTTP)
}

func (w *walk) networkFilters(m protoreflect.Message) {
	w.chain(m, "filters", terminalNetwork, otherNetwork)
}

// chain reports a terminal filter that is not last, and a last filter that is not terminal.
func (w *walk) chain(m protoreflect.Message, field protoreflect.Name, terminal, other map[protoreflect.FullName]bool) {
	filters := get(m, field).List()
	for i := range filters.Len() {
		f := filters.Get(i).Message()
		pkg := w.packageOf(f)
		name, last := get(f, "name").String(), i == filters.Len()-1
		var wrong string
		switch {
		case last && other[pkg]:
			wrong = "filter %q is the last of its chain, but is not a terminal filter"
		case !last && terminal[pkg]:
			wrong = "filter %q is a terminal filter, but is not the last of its chain"
		case last && terminal[pkg] && f.Descriptor().Fields().ByName("disabled") != nil && get(f, "disabled").Bool():
			wrong = "filter %q is the terminal filter of its chain, but is disabled"
		default:
			continue
		}
		w.in(m, field, i, func() { w.report(findings.TerminalFilter, "", "", wrong, name) })
		return // the filter after this one would fail for the same reason
	}
}

// packageOf returns the package of a filter's settings; "" if it is not known.
func (w *walk) packageOf(filter protoreflect.Message) protoreflect.FullName {
	if !has(filter, "typed_config") {
		return ""
	}
	url := get(get(filter, "typed_config").Message(), "type_url").String()
	return protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:]).Parent()
}
