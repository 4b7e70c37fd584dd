package k8s

import (
	"fmt"
	"strings"
)

// A Service is a service of Kubernetes and one of its ports.
type Service struct {
	Namespace, Name string
	Port            string // a name or a number; "": the only port
}

// A Mapping adds the endpoints of a service to a cluster. A cluster may have several mappings.
type Mapping struct {
	Cluster string
	Service
}

// ParseMapping parses CLUSTER=NAMESPACE/SERVICE[:PORT].
func ParseMapping(text string) (Mapping, error) {
	cluster, of := "", text
	if i := strings.LastIndex(text, "="); i >= 0 { // names of Kubernetes do not contain "="
		cluster, of = text[:i], text[i+1:]
	}
	of, port, _ := strings.Cut(of, ":")
	namespace, name, two := strings.Cut(of, "/")
	if !two || cluster == "" || namespace == "" || name == "" || strings.Contains(name, "/") {
		return Mapping{}, fmt.Errorf("%q: write CLUSTER=NAMESPACE/SERVICE or CLUSTER=NAMESPACE/SERVICE:PORT", text)
	}
	return Mapping{cluster, Service{namespace, name, port}}, nil
}

// DefaultNames is the default of Options.Names.
const DefaultNames = "{namespace}/{service}/{port}"

// cluster returns the name of the cluster of a service.
func (s Service) cluster(names string) string {
	name := strings.NewReplacer("{namespace}", s.Namespace, "{service}", s.Name, "{port}", s.Port).Replace(names)
	if s.Port == "" {
		name = strings.TrimRight(name, "/:-_.") // without the separator before {port}
	}
	return name
}
