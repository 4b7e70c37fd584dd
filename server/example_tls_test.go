package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/chancery-xds/chancery/server"
	"github.com/chancery-xds/chancery/store"
	"github.com/chancery-xds/chancery/xds"
)

// A server asks its clients for certificates, and refuses clients without one. Credentials adds the limit of unfinished
// requests to the credentials of gRPC.
func ExampleServer_Credentials() {
	st := store.New()
	if _, err := st.Update(func(tx *store.Tx) error {
		tx.Set(xds.NewResource(xds.Cluster, "backend", []byte("an encoded Cluster")))
		return nil
	}); err != nil {
		panic(err)
	}
	ca := newAuthority()
	srv := server.New(st)
	creds := credentials.NewTLS(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{ca.issue("xds.example")}, // GetCertificate where files may change
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    ca.pool,
	})
	g := grpc.NewServer(append(server.GRPCOptions(), grpc.Creds(srv.Credentials(creds)))...)
	if err := srv.Register(g); err != nil {
		panic(err)
	}
	l := bufconn.Listen(1 << 20)
	go g.Serve(l)
	defer g.Stop()

	fmt.Println("with a certificate:", clusters(l, &tls.Config{RootCAs: ca.pool, ServerName: "xds.example", Certificates: []tls.Certificate{ca.issue("edge-1")}}))
	fmt.Println("without:", clusters(l, &tls.Config{RootCAs: ca.pool, ServerName: "xds.example"}))
	// Output:
	// with a certificate: OK, 1 clusters
	// without: Unavailable, 0 clusters
}

// clusters subscribes to all clusters.
func clusters(l *bufconn.Listener, config *tls.Config) string {
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var got *discoveryv3.DiscoveryResponse
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL}) // Recv returns the reason
		got, err = stream.Recv()
	}
	code := codes.OK
	if err != nil {
		code = status.Code(err)
	}
	return fmt.Sprintf("%v, %d clusters", code, len(got.GetResources()))
}

// An authority issues the certificates of the example.
type authority struct {
	pool *x509.CertPool
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		panic(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		panic(err)
	}
	a := authority{pool: x509.NewCertPool(), cert: cert, key: key}
	a.pool.AddCert(cert)
	return a
}

func (a authority) issue(name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
