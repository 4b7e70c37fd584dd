package real

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	auth "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// A kube is an etcd with two API servers. chancery-k8s follows one, which the test can kill. The test
// makes changes by the other one.
type kube struct {
	*testing.T
	dir      string
	etcd     string // its URL
	followed *process
	address  string // of the API server that is followed
	client   kubernetes.Interface
	there    kubernetes.Interface // a client of the API server that is followed
}

func startKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{T: t, dir: t.TempDir(), etcd: "http://" + free(t), address: free(t)}
	peer := "http://" + free(t)
	launch(t, "etcd", "--data-dir", filepath.Join(k.dir, "etcd"), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", k.etcd, "--advertise-client-urls", k.etcd, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	eventually(t, func() error {
		_, err := k.ask("/v3/kv/range", map[string]any{"key": key("/")})
		return err
	})
	makeCertificates(t, k.dir)
	other := free(t)
	launch(t, "kube-apiserver", k.flags(other)...)
	k.followed = launch(t, "kube-apiserver", k.flags(k.address)...)
	k.client, k.there = k.administrator(other), k.administrator(k.address)
	k.ready(k.client)
	k.ready(k.there)
	k.permit()
	return k
}

// flags returns the flags of an API server.
func (k *kube) flags(address string) []string {
	host, port, _ := net.SplitHostPort(address)
	in := func(name string) string { return filepath.Join(k.dir, name) }
	return []string{
		"--etcd-servers", k.etcd, "--bind-address", host, "--secure-port", port, "--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
		"--tls-cert-file", in("server.crt"), "--tls-private-key-file", in("server.key"), "--client-ca-file", in("ca.crt"),
		"--service-account-issuer", "https://kubernetes.test", "--service-account-signing-key-file", in("tokens.key"), "--service-account-key-file", in("tokens.key"),
		"--service-cluster-ip-range", "10.96.0.0/16", "--authorization-mode", "RBAC", "--etcd-compaction-interval", "0", // the test compacts
	}
}

func (k *kube) administrator(address string) kubernetes.Interface {
	k.Helper()
	in := func(name string) string { return filepath.Join(k.dir, name) }
	c, err := kubernetes.NewForConfig(&rest.Config{Host: "https://" + address, QPS: 1000, Burst: 1000, TLSClientConfig: rest.TLSClientConfig{CAFile: in("ca.crt"), CertFile: in("admin.crt"), KeyFile: in("admin.key")}})
	if err != nil {
		k.Fatal(err)
	}
	return c
}

func (k *kube) ready(c kubernetes.Interface) {
	k.Helper()
	eventually(k.T, func() error { return c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(k.Context()).Error() })
}

// permit creates the namespaces and the objects of rbac.yaml.
func (k *kube) permit() {
	k.Helper()
	for _, name := range []string{"chancery", "shop"} {
		_, err := k.client.CoreV1().Namespaces().Create(k.Context(), &core.Namespace{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{})
		k.must(err)
	}
	b, err := os.ReadFile("../rbac.yaml")
	k.must(err)
	for text := range strings.SplitSeq(string(b), "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		k.must(err)
		switch o := o.(type) {
		case *core.ServiceAccount:
			_, err = k.client.CoreV1().ServiceAccounts(o.Namespace).Create(k.Context(), o, meta.CreateOptions{})
		case *rbac.ClusterRole:
			_, err = k.client.RbacV1().ClusterRoles().Create(k.Context(), o, meta.CreateOptions{})
		case *rbac.ClusterRoleBinding:
			_, err = k.client.RbacV1().ClusterRoleBindings().Create(k.Context(), o, meta.CreateOptions{})
		}
		k.must(err)
	}
}

// token returns a token of the service account of rbac.yaml.
func (k *kube) token() string {
	k.Helper()
	return k.tokenOf("chancery", "chancery-k8s")
}

func (k *kube) tokenOf(namespace, account string) string {
	k.Helper()
	accounts := k.client.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Get(k.Context(), account, meta.GetOptions{})
	if apierrors.IsNotFound(err) { // a controller would make the default account, but none runs here
		_, err = accounts.Create(k.Context(), &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: account}}, meta.CreateOptions{})
	}
	k.must(err)
	r, err := accounts.CreateToken(k.Context(), account, &auth.TokenRequest{}, meta.CreateOptions{})
	k.must(err)
	return r.Status.Token
}

// kubeconfig writes a kubeconfig for the API server that is followed.
func (k *kube) kubeconfig(token, ca string) string {
	k.Helper()
	path := filepath.Join(k.TempDir(), "kubeconfig")
	k.must(clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"x": {Server: "https://" + k.address, CertificateAuthority: filepath.Join(k.dir, ca)}},
		AuthInfos:      map[string]*api.AuthInfo{"x": {Token: token}},
		Contexts:       map[string]*api.Context{"x": {Cluster: "x", AuthInfo: "x"}},
		CurrentContext: "x",
	}, path))
	return path
}

// slice returns a slice of service shop/NAME, with a port http.
func slice(name, service string, addresses ...string) *discovery.EndpointSlice {
	port, http := int32(80), "http"
	s := &discovery.EndpointSlice{ObjectMeta: meta.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discovery.LabelServiceName: service}}, AddressType: discovery.AddressTypeIPv4, Ports: []discovery.EndpointPort{{Name: &http, Port: &port}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{a}})
	}
	return s
}

// put creates or changes a slice, and returns its resource version.
func (k *kube) put(s *discovery.EndpointSlice) string {
	k.Helper()
	slices := k.client.DiscoveryV1().EndpointSlices(s.Namespace)
	made, err := slices.Create(k.Context(), s, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		made, err = slices.Update(k.Context(), s, meta.UpdateOptions{})
	}
	k.must(err)
	return made.ResourceVersion
}

func (k *kube) remove(name string) {
	k.Helper()
	k.must(k.client.DiscoveryV1().EndpointSlices("shop").Delete(k.Context(), name, meta.DeleteOptions{}))
}

// compact makes the etcd forget all old revisions.
func (k *kube) compact() {
	k.Helper()
	answer, err := k.ask("/v3/kv/range", map[string]any{"key": key("/")})
	k.must(err)
	_, err = k.ask("/v3/kv/compaction", map[string]any{"revision": answer.Header.Revision, "physical": true})
	k.must(err)
}

func key(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

type etcdAnswer struct {
	Header struct{ Revision string }
}

// ask sends a request to the etcd over HTTP.
func (k *kube) ask(path string, body any) (answer etcdAnswer, err error) {
	b, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	r, err := http.Post(k.etcd+path, "application/json", bytes.NewReader(b))
	if err != nil {
		return answer, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s: %s", path, r.Status)
	}
	return answer, json.NewDecoder(r.Body).Decode(&answer)
}

func (k *kube) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}
