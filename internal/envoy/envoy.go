package envoy

import (
	"bytes"
	"compress/gzip"
	_ "embed" // the set
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

//go:embed descriptors.binpb.gz
var packed []byte

//go:embed modules.txt
var modules string

// Version returns the version of the Go module of Envoy's API in the set, such as "v1.40.0".
func Version() string {
	for line := range strings.Lines(modules) {
		if v, ok := strings.CutPrefix(line, "github.com/envoyproxy/go-control-plane/envoy "); ok {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// Envoy returns the types of Envoy's API. Each call returns the same value.
var Envoy = sync.OnceValue(func() *Types {
	set, err := unpack(packed)
	if err != nil {
		panic(fmt.Sprintf("envoy: the embedded set: %v", err))
	}
	t := newTypes()
	files, err := split(set)
	for _, f := range files {
		if err == nil {
			_, err = t.add(f)
		}
	}
	if err != nil {
		panic(fmt.Sprintf("envoy: the embedded set: %v", err))
	}
	return t
})

func newTypes() *Types {
	return &Types{index: index{files: map[string][]byte{}, at: map[protoreflect.FullName]string{}}, built: &protoregistry.Files{}}
}

func unpack(b []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
