package e2e

import (
	"testing"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	aggregate "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"

	"github.com/chancery-xds/chancery/e2e/harness"
)

// aggregateOf returns an aggregate cluster with these members.
func aggregateOf(name string, members ...string) *cluster.Cluster {
	return &cluster.Cluster{
		Name: name, LbPolicy: cluster.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &cluster.Cluster_ClusterType{ClusterType: &cluster.Cluster_CustomClusterType{
			Name: "envoy.clusters.aggregate", TypedConfig: harness.Pack(&aggregate.ClusterConfig{Clusters: members}),
		}},
	}
}

// One commit gives an aggregate cluster another member and deletes the old one, under load.
func TestMakeBeforeBreakInsideAggregate(t *testing.T) {
	t.Parallel()
	each(t, "ADS-10 an aggregate cluster goes from member to member", func(t *testing.T, v variant) {
		c := newChain(t, newSite(t, renamed, patient, func(w world) {
			w.set(aggregateOf("all", "backend"), routes("ingress", "1", "all"))
		}), v)
		c.paced(40, 100*time.Millisecond, func() {
			old := c.at
			c.n++
			c.link = newLink(c.n, c.site)
			c.commit(c.at+" takes the place of "+old, func(w world) {
				w.drop(edsCluster(old, 0), assignment(old))
				w.set(patientCluster(c.at), assignment(c.at, c.from.port), aggregateOf("all", c.at))
			})
			eventually(t, generous, "traffic follows to "+c.at, c.ingress.gets(answer{c.from.name, "1"}))
			c.alone("all")
		})
		c.load.Stop()
		c.load.Unharmed(t)
		exactly(t, 0, "NACK", c.Since(0).NACKs())
	})
}
