package real

import (
	"fmt"
	"slices"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// All tests share one Kubernetes, because its start takes longer than they do.
func TestKubernetes(t *testing.T) {
	if *programs == "" {
		t.Skip("make k8s-real runs it, for which a kube-apiserver is compiled")
	}
	k := startKube(t)
	for _, c := range []struct {
		what string
		test func(*testing.T, *kube)
	}{
		{"changes", testChanges},
		{"thousands", testMany},
		{"the API server is killed", testKilled},
		{"a start without an API server", testStartAlone},
		{"a compaction", testCompaction},
		{"permissions come and go", testPermissions},
		{"of one namespace", testNamespace},
		{"strangers", testStrangers},
		{"a directory as ConfigMaps", testConfigMaps},
	} {
		t.Run(c.what, func(t *testing.T) {
			one := *k
			one.T = t
			c.test(t, &one)
		})
	}
}

func testChanges(t *testing.T, k *kube) {
	m := startMesh(t, "backend")
	f := m.follow(k.kubeconfig(k.token(), "ca.crt"), "backend=shop/b:http")
	k.put(slice("b-1", "b", "10.0.0.1", "10.0.0.2"))
	m.gets("10.0.0.1", "10.0.0.2")
	k.put(slice("b-2", "b", "10.0.0.3"))
	m.gets("10.0.0.1", "10.0.0.2", "10.0.0.3")

	ending := slice("b-1", "b", "10.0.0.1", "10.0.0.4")
	no, yes := false, true
	c := &ending.Endpoints[0].Conditions
	c.Ready, c.Serving, c.Terminating = &no, &yes, &yes
	k.put(ending)
	m.gets("10.0.0.1", "10.0.0.3", "10.0.0.4")
	if h := m.health("k8s/10.0.0.1:80"); h != "DRAINING" {
		t.Error(h)
	}
	k.remove("b-1")
	m.gets("10.0.0.3")
	k.remove("b-2")
	m.gets()
	if took, code := f.stop(); code != 0 || took > 5*time.Second {
		t.Errorf("ended after %v with %d", took, code)
	}
}

// A service has 5,000 endpoints in slices of 100, as Kubernetes makes them.
func testMany(t *testing.T, k *kube) {
	m := startMesh(t, "many")
	m.follow(k.kubeconfig(k.token(), "ca.crt"), "many=shop/m:http")
	var want []string
	for i := range 50 {
		var part []string
		for j := range 100 {
			part = append(part, fmt.Sprintf("10.1.%d.%d", i, j))
		}
		want = append(want, part...)
		k.put(slice(fmt.Sprint("m-", i), "m", part...))
	}
	slices.Sort(want)
	m.gets(want...)
	for i := range 50 {
		k.remove(fmt.Sprint("m-", i))
	}
	m.gets()
}

// A killed API server removes no endpoints. Changes while it is away appear when it is back, although it has
// forgotten the events: "410 Gone".
func testKilled(t *testing.T, k *kube) {
	m := startMesh(t, "backend")
	f := m.follow(k.kubeconfig(k.token(), "ca.crt"), "backend=shop/k:http")
	last := k.put(slice("k-1", "k", "10.2.0.1"))
	k.put(slice("k-2", "k", "10.2.0.2"))
	m.gets("10.2.0.1", "10.2.0.2")

	mark := f.mark()
	k.followed.kill()
	f.says(mark, `"WARN"`, "endpoint slices cannot be watched", "connection refused")
	k.remove("k-1")
	k.put(slice("k-3", "k", "10.2.0.3"))
	k.compact()
	if got := m.now(); got != "10.2.0.1 10.2.0.2" {
		t.Error(got)
	}
	k.followed.start()
	k.ready(k.there)
	began := time.Now()
	m.gets("10.2.0.2", "10.2.0.3")
	t.Logf("known %v after the API server was ready", time.Since(began))
	f.says(mark, "endpoint slices are watched again")
	// The watch got this error.
	w, err := k.there.DiscoveryV1().EndpointSlices("shop").Watch(t.Context(), meta.ListOptions{ResourceVersion: last})
	if err == nil {
		err = apierrors.FromObject((<-w.ResultChan()).Object)
		w.Stop()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from %s: %v", last, err)
	}
	k.remove("k-2")
	m.gets("10.2.0.3")
	k.remove("k-3")
	m.gets()
}

// A start without an API server keeps the registered endpoints, ends at a signal, and later removes endpoints that disappeared.
func testStartAlone(t *testing.T, k *kube) {
	m := startMesh(t, "backend")
	config := k.kubeconfig(k.token(), "ca.crt")
	f := m.follow(config, "backend=shop/a:http")
	k.put(slice("a-1", "a", "10.3.0.1"))
	k.put(slice("a-2", "a", "10.3.0.2"))
	m.gets("10.3.0.1", "10.3.0.2")
	f.kill()
	k.followed.kill()
	k.remove("a-1")
	mark := f.mark()
	f.start()
	f.says(mark, `"WARN"`, "connection refused")
	if took, code := f.stop(); code != 0 || took > 5*time.Second {
		t.Errorf("ended after %v with %d", took, code)
	}
	f.start()
	if got := m.now(); got != "10.3.0.1 10.3.0.2" {
		t.Error(got)
	}
	k.followed.start()
	m.gets("10.3.0.2")
	k.ready(k.there)
	k.remove("a-2")
	m.gets()
}

// Compactions during a watch lose no change.
func testCompaction(t *testing.T, k *kube) {
	m := startMesh(t, "backend")
	m.follow(k.kubeconfig(k.token(), "ca.crt"), "backend=shop/c:http")
	var want []string
	for i := range 30 {
		want = append(want, fmt.Sprintf("10.4.0.%d", i+1))
		k.put(slice("c-1", "c", want...))
		k.compact()
	}
	slices.Sort(want)
	m.gets(want...)
	k.remove("c-1")
	k.compact()
	m.gets()
}

// Without permission to watch, the log has the reason, no endpoint is removed, and no restart is needed after the permission is granted.
func testPermissions(t *testing.T, k *kube) {
	m := startMesh(t, "backend")
	k.put(slice("p-1", "p", "10.5.0.1"))
	config := k.kubeconfig(k.token(), "ca.crt")
	bindings := k.client.RbacV1().ClusterRoleBindings()
	old, err := bindings.Get(t.Context(), "chancery-k8s", meta.GetOptions{})
	k.must(err)
	old.ResourceVersion = ""
	grant := func() {
		t.Helper()
		_, err := bindings.Create(t.Context(), old, meta.CreateOptions{})
		k.must(err)
	}
	revoke := func() { t.Helper(); k.must(bindings.Delete(t.Context(), "chancery-k8s", meta.DeleteOptions{})) }

	revoke()
	f := m.follow(config, "backend=shop/p:http")
	forbidden := []string{`"WARN"`, "endpoint slices cannot be watched", "forbidden", "system:serviceaccount:chancery:chancery-k8s", "endpointslices", "discovery.k8s.io"}
	f.says(0, forbidden...)
	grant()
	m.gets("10.5.0.1")
	f.says(0, "endpoint slices are watched again")

	revoke() // a watch notices it at its next start
	mark := f.mark()
	k.followed.kill()
	k.remove("p-1")
	k.put(slice("p-2", "p", "10.5.0.2"))
	k.followed.start()
	f.says(mark, forbidden...)
	if got := m.now(); got != "10.5.0.1" {
		t.Error(got)
	}
	k.ready(k.there)
	grant()
	m.gets("10.5.0.2")
	k.remove("p-2")
	m.gets()
}

// A role in one namespace is enough to follow only that namespace.
func testNamespace(t *testing.T, k *kube) {
	m := startMesh(t, "shop/n/http")
	_, err := k.client.RbacV1().Roles("shop").Create(t.Context(), &rbac.Role{ObjectMeta: meta.ObjectMeta{Name: "one"}, Rules: []rbac.PolicyRule{{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}}}}, meta.CreateOptions{})
	k.must(err)
	_, err = k.client.RbacV1().RoleBindings("shop").Create(t.Context(), &rbac.RoleBinding{ObjectMeta: meta.ObjectMeta{Name: "one"}, RoleRef: rbac.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: "one"},
		Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: "shop"}}}, meta.CreateOptions{})
	k.must(err)
	config := k.kubeconfig(k.tokenOf("shop", "default"), "ca.crt")
	selected := slice("n-1", "n", "10.6.0.1")
	selected.Labels["mesh"] = "yes"
	k.put(selected)
	k.put(slice("n-2", "n", "10.6.0.2"))
	m.follow(config, "--all", "--owner", "all").says(0, "cannot be watched", "at the cluster scope")
	m.follow(config, "--all", "--namespace", "shop", "--selector", "mesh=yes")
	m.gets("10.6.0.1")
	k.remove("n-1")
	m.gets()
	k.remove("n-2")
}

// With an invalid token, or a wrong CA, the log has the reason.
func testStrangers(t *testing.T, k *kube) {
	m := startMesh(t, "backend")
	m.follow(k.kubeconfig("x", "ca.crt"), "backend=shop/b:http").says(0, `"WARN"`, "endpoint slices cannot be watched", "nauthorized")
	m.follow(k.kubeconfig(k.token(), "stranger.crt"), "backend=shop/b:http").says(0, `"WARN"`, "endpoint slices cannot be watched", "certificate signed by unknown authority")
}
