package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The example of docs/proxyless-grpc.md leads a gRPC client to its server.
func TestGRPCPage(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../examples/grpc/greeter.yaml")
	if err != nil {
		t.Fatal(err)
	}
	everyGRPC(t, func(t *testing.T, of implementation) {
		server := newGreeter(t, "greeter")
		file := strings.Replace(string(example), "port_value: 50051", fmt.Sprint("port_value: ", server.port), 1)
		if file == string(example) {
			t.Fatal("the example has no port 50051")
		}
		d := newDaemon(t, newWorld(), renamed)
		if err := os.WriteFile(filepath.Join(d.dir, "greeter.yaml"), []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		call, _ := of.dial(t, "page", d.port)
		eventually(t, 30*time.Second, "an answer of the greeter", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			a, err := call(ctx)
			if err == nil && a.from != server.name {
				err = errors.New("it was answered by " + a.from)
			}
			return err
		})
	})
}
