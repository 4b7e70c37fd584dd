package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"

	adminclient "github.com/chancery-xds/chancery/internal/admin/client"
	"github.com/chancery-xds/chancery/internal/envoy/importer"
	"github.com/chancery-xds/chancery/internal/listen"
)

// MarkEnvoyAdmin gives the flag --admin a variable of its own, for commands in which it is the address of
// an Envoy. The variable CHANCERY_ADMIN is the address of the Chancery server.
func MarkEnvoyAdmin(f *pflag.FlagSet) {
	Annotate(f.Lookup("admin"), OwnVariable, VariablePrefix+"ENVOY_ADMIN")
}

// EnvoyConfigDump requests the config_dump of an Envoy, with endpoints, from the Envoy's admin interface.
func EnvoyConfigDump(ctx context.Context, a listen.Address, most int64) (importer.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	SilenceHTTPLog()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	host := "envoy"
	if a.Network == "unix" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Path)
		}
	} else {
		host = a.String()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/config_dump?include_eds", http.NoBody)
	if err != nil {
		return importer.File{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		if adminclient.NoHTTP1(err) { // the peer sent HTTP/2 frames
			return importer.File{}, Fail(fmt.Errorf("ask Envoy at %s: the server there does not speak HTTP/1.1", a), "is it a gRPC port, and not the port of Envoy's admin interface?")
		}
		return importer.File{}, Fail(fmt.Errorf("ask Envoy at %s: %w", a, errors.Unwrap(err)), "is that the address of its admin interface?")
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return importer.File{}, Fail(fmt.Errorf("ask Envoy at %s: /config_dump answers %s", a, response.Status), "is that the address of its admin interface?")
	}
	return importer.Read("config_dump of "+a.String(), response.Body, most)
}
