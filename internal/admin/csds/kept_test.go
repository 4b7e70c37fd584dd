package csds

import (
	"context"
	"net/http"
	"strings"
	"testing"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/chancery-xds/chancery/xds"
)

// A refused version is in error_state; the version that the client keeps is shown, too.
func TestRefusedAndKeptVersions(t *testing.T) {
	newer := proto.CloneOf(cluster)
	newer.AltStatName = "newer"
	old, is := resource(t, xds.Cluster, cluster), resource(t, xds.Cluster, newer)
	other, key := resource(t, xds.Cluster, broken), resource(t, xds.Secret, cert)
	refuses := func(name string, keeps, refused *xds.Resource) Resource {
		return Resource{Name: name, State: Refused, Body: keeps, Has: keeps != nil, Failure: &Failure{At: began, Version: refused.Version, Text: "no", Body: refused}}
	}
	c := edge(t, "one")
	c.Config = func(context.Context) ([]TypeConfig, error) {
		return []TypeConfig{
			{xds.Cluster, "c1", []Resource{refuses(old.Name, old, is), refuses(other.Name, nil, other)}},
			{xds.Secret, "", []Resource{refuses(key.Name, nil, key)}},
		}, nil
	}
	const nacked = adminv3.ClientResourceStatus_NACKED
	failed := func(r *xds.Resource, shown proto.Message) *adminv3.UpdateFailureState {
		return &adminv3.UpdateFailureState{FailedConfiguration: packed(t, shown), LastUpdateAttempt: timestamppb.New(began), Details: "no", VersionInfo: r.Version}
	}

	got, err := dial(t, serve(t, service(c), plain)).FetchClientStatus(t.Context(), &statusv3.ClientStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(r *xds.Resource, failure *adminv3.UpdateFailureState) *statusv3.ClientConfig_GenericXdsConfig {
		return &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: r.Type.URL, Name: r.Name, ConfigStatus: statusv3.ConfigStatus_ERROR, ClientStatus: nacked, ErrorState: failure}
	}
	kept := of(old, failed(is, newer))
	kept.XdsConfig, kept.VersionInfo = packed(t, cluster), old.Version
	want := expected(t, "one")
	want.GenericXdsConfigs = []*statusv3.ClientConfig_GenericXdsConfig{kept, of(other, failed(other, broken)), of(key, failed(key, shown))}
	same(t, got, &statusv3.ClientStatusResponse{Config: []*statusv3.ClientConfig{want}})

	w := get(service(c).ConfigDump(), "/config_dump")
	dump := &adminv3.ConfigDump{}
	if err := protojson.Unmarshal(w.Body.Bytes(), dump); err != nil || w.Code != http.StatusOK || strings.Contains(w.Body.String(), "canary") {
		t.Fatalf("%v in\n%s", err, w.Body)
	}
	for i, c := range dump.Configs { // the order of JSON fields is undefined
		m, err := c.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		dump.Configs[i] = packed(t, m)
	}
	same(t, dump, &adminv3.ConfigDump{Configs: []*anypb.Any{
		packed(t, &adminv3.ClustersConfigDump{
			VersionInfo: "c1",
			DynamicActiveClusters: []*adminv3.ClustersConfigDump_DynamicCluster{{
				VersionInfo: old.Version, Cluster: packed(t, cluster), ClientStatus: nacked, ErrorState: failed(is, newer),
			}},
			DynamicWarmingClusters: []*adminv3.ClustersConfigDump_DynamicCluster{{ClientStatus: nacked, ErrorState: failed(other, broken)}},
		}),
		packed(t, &adminv3.SecretsConfigDump{DynamicWarmingSecrets: []*adminv3.SecretsConfigDump_DynamicSecret{{Name: key.Name, ClientStatus: nacked, ErrorState: failed(key, shown)}}}),
	}})
}
