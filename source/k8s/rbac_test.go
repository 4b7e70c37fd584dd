package k8s

import (
	"os"
	"reflect"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

// The manifest is valid for Kubernetes, and grants only the needed permissions.
func TestRBAC(t *testing.T) {
	b, err := os.ReadFile("rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for text := range strings.SplitSeq(string(b), "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if role, is := o.(*rbac.ClusterRole); is {
			rules++
			if want := []rbac.PolicyRule{{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}}}; !reflect.DeepEqual(role.Rules, want) {
				t.Error(role.Rules)
			}
		}
	}
	if rules != 1 {
		t.Errorf("%d roles", rules)
	}
}
