//go:build pins

package main

// One package of each module with descriptors, so that go.mod has all these modules.
import (
	_ "cel.dev/expr"
	_ "github.com/cncf/xds/go/xds/core/v3"
	_ "github.com/envoyproxy/go-control-plane/contrib/envoy/extensions/filters/http/golang/v3alpha"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	_ "github.com/envoyproxy/protoc-gen-validate/validate"
	_ "github.com/prometheus/client_model/go"
	_ "go.opentelemetry.io/proto/otlp/common/v1"
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/genproto/googleapis/rpc/status"
)
