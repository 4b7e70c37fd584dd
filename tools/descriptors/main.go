// Descriptors writes the descriptor set of Envoy's API that the command embeds, and a
// list of the modules from which the descriptors come. It reads the descriptors from the generated
// code without compiling it, because no other source has them at the versions of the Go
// modules.
//
// usage: descriptors DIRECTORY
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
)

// roots are the modules whose files are all in the set. Other modules add only imported files.
var roots = []string{
	"github.com/cncf/xds/go",
	"github.com/envoyproxy/go-control-plane/envoy",
	"github.com/envoyproxy/go-control-plane/contrib",
}

var others = []string{
	"cel.dev/expr",
	"github.com/envoyproxy/protoc-gen-validate",
	"github.com/prometheus/client_model",
	"go.opentelemetry.io/proto/otlp",
	"google.golang.org/genproto/googleapis/api",
	"google.golang.org/genproto/googleapis/rpc",
	"google.golang.org/protobuf",
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: descriptors DIRECTORY")
	}
	if err := run(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(to string) error {
	modules, err := download(slices.Concat(roots, others))
	if err != nil {
		return err
	}
	s := set{known: map[string]*descriptorpb.FileDescriptorProto{}, taken: map[string]bool{}}
	var wanted []string
	for _, m := range modules {
		files, err := descriptors(m.Dir)
		if err != nil {
			return err
		}
		for _, f := range files {
			if s.known[f.GetName()] != nil {
				return fmt.Errorf("%s is in more than one module", f.GetName())
			}
			s.known[f.GetName()] = f
			if slices.Contains(roots, m.Path) {
				wanted = append(wanted, f.GetName())
			}
		}
	}
	for _, name := range wanted {
		if err := s.take(name); err != nil {
			return err
		}
	}
	slices.SortFunc(s.out.File, func(a, b *descriptorpb.FileDescriptorProto) int { return cmp.Compare(a.GetName(), b.GetName()) })
	packed, err := compress(&s.out)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, m := range modules {
		fmt.Fprintln(&list, m.Path, m.Version)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(to, "descriptors.binpb.gz"), packed, 0o644),
		os.WriteFile(filepath.Join(to, "modules.txt"), []byte(list.String()), 0o644))
}

// A set has all known files, and those chosen so far.
type set struct {
	known map[string]*descriptorpb.FileDescriptorProto
	taken map[string]bool
	out   descriptorpb.FileDescriptorSet
}

// take adds a file and its imports to the set.
func (s *set) take(name string) error {
	if s.taken[name] {
		return nil
	}
	s.taken[name] = true
	f := s.known[name]
	if f == nil {
		return fmt.Errorf("%s is imported, but no module has it", name)
	}
	s.out.File = append(s.out.File, f)
	for _, imported := range f.Dependency {
		if err := s.take(imported); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func compress(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

type module struct{ Path, Version, Dir string }

// download downloads modules at the versions of go.mod, and returns their directories in the same order.
func download(paths []string) ([]module, error) {
	cmd := exec.Command("go", append([]string{"mod", "download", "-json"}, paths...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	var all []module
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var m module
		if err := d.Decode(&m); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b module) int {
		return cmp.Compare(slices.Index(paths, a.Path), slices.Index(paths, b.Path))
	})
	return all, nil
}
