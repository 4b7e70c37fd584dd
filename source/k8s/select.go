package k8s

import (
	"fmt"
	"strings"
)

// A Service is one of Kubernetes, and its port.
type Service struct {
	Namespace, Name string
	Port            string // a name, or a number; "": the only one
}

// A Mapping says which services a cluster has its endpoints from.
type Mapping struct {
	Cluster string
	Service
}

// ParseMapping reads CLUSTER=NAMESPACE/SERVICE[:PORT].
func ParseMapping(text string) (Mapping, error) {
	cluster, of := "", text
	if i := strings.LastIndex(text, "="); i >= 0 { // no name of Kubernetes has one
		cluster, of = text[:i], text[i+1:]
	}
	of, port, _ := strings.Cut(of, ":")
	namespace, name, two := strings.Cut(of, "/")
	if !two || cluster == "" || namespace == "" || name == "" || strings.Contains(name, "/") {
		return Mapping{}, fmt.Errorf("%q: write CLUSTER=NAMESPACE/SERVICE or CLUSTER=NAMESPACE/SERVICE:PORT", text)
	}
	return Mapping{cluster, Service{namespace, name, port}}, nil
}

// DefaultNames is how clusters of all selected services are called.
const DefaultNames = "{namespace}/{service}/{port}"

// cluster is what the cluster of a service is called.
func (s Service) cluster(names string) string {
	name := strings.NewReplacer("{namespace}", s.Namespace, "{service}", s.Name, "{port}", s.Port).Replace(names)
	if s.Port == "" {
		name = strings.TrimRight(name, "/:-_.") // what was before it
	}
	return name
}
